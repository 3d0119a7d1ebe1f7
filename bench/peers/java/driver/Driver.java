import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.charset.StandardCharsets;
import java.util.BitSet;
import java.util.Random;
import java.util.concurrent.Semaphore;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.atomic.AtomicReference;
import java.util.concurrent.locks.LockSupport;

/**
 * The loops of the benchmark's workload for a log whose client is in Java: what `InProcessSampler` does in Python.
 *
 * <p>Each line of standard input is a command, each line of standard output its answer: one JSON object, `{"error": …}` where
 * the command failed. Sizes are in bytes, durations in seconds, answers in nanoseconds of System.nanoTime, which on Linux is
 * the clock of Python's time.perf_counter.
 *
 * <pre>
 * fresh                          pump SIZE SECONDS IN_FLIGHT     read COUNT            in-charge
 * one SIZE SECONDS               open SIZE RATE COUNT LIMIT
 * follow SIZE LIMIT              tail SIZE RATE COUNT LIMIT      unfollow
 * append-start SIZE              append-last                     append-stop LIMIT
 * produce PRODUCERS SHARDS SIZE SECONDS IN_FLIGHT KEYS
 * </pre>
 */
final class Driver {
    private static final long WARM_UP = -1;
    private static final int SAMPLES_MAX = 10_000_000;

    private final Log log;
    private volatile Delivery delivery = (payload, seenNs) -> {};
    private AutoCloseable following = () -> {};
    private Thread appending;
    private volatile boolean stopping;
    private volatile long lastAckNs;
    private Samples acks;
    private long failed;

    Driver(Log log) {
        this.log = log;
    }

    /** A log in some system. */
    interface Log {
        /** Goes on with a new, empty log. */
        void fresh() throws Exception;

        /** Appends without waiting; `done` gets null, or the error. */
        void append(byte[] payload, Done done);

        /** The same where only the rate counts: the client may wait a little to send more at once. */
        default void appendInBatches(byte[] payload, Done done) {
            append(payload, done);
        }

        /** Appends and returns once the record is acked. */
        void append(byte[] payload) throws Exception;

        /** Reads so many records from the start of the log; returns {records, bytes}. */
        long[] read(long count) throws Exception;

        /** Delivers every record that is appended from now on, until what is returned is closed. */
        AutoCloseable follow(Delivery delivery) throws Exception;

        /** The servers that have the end of the log, as JSON. */
        String inCharge() throws Exception;

        /**
         * Lets producers append the payload to a new topic for so long, each with so many records in flight, under these keys in
         * turn (none: without a key); returns {acked records, nanoseconds from the first append to the last ack}.
         */
        default long[] produce(int producers, int shards, byte[] payload, long durationNs, int inFlight, byte[][] keys)
                throws Exception {
            throw new UnsupportedOperationException("no topics");
        }
    }

    /** Called once for each append. */
    interface Done {
        void call(Throwable error);
    }

    /** Called once for each record that a reader gets. */
    interface Delivery {
        void call(byte[] payload, long seenNs);
    }

    /** Serves standard input until it ends. */
    void serve() throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.US_ASCII));
        for (String line; (line = in.readLine()) != null; ) {
            String answer;
            try {
                answer = "{" + answer(line.trim().split(" ")) + "}";
            } catch (Exception error) {
                error.printStackTrace();
                answer = "{\"error\": \"" + error.toString().replaceAll("[^ !#-\\[\\]-~]", " ") + "\"}";
            }
            System.out.println(answer);
            System.out.flush();
        }
    }

    private String answer(String[] word) throws Exception {
        switch (word[0]) {
            case "fresh":
                log.fresh();
                return "";
            case "pump":
                return "\"acked\": " + pump(size(word), seconds(word[2]), Integer.parseInt(word[3]));
            case "read":
                long[] read = log.read(Long.parseLong(word[1]));
                return "\"came\": " + read[0] + ", \"bytes\": " + read[1];
            case "in-charge":
                return "\"servers\": " + log.inCharge();
            case "produce":
                byte[][] keys = new byte[Integer.parseInt(word[6])][];
                for (int i = 0; i < keys.length; i++) {
                    keys[i] = ("key-" + i).getBytes(StandardCharsets.US_ASCII);
                }
                long[] produced = log.produce(Integer.parseInt(word[1]), Integer.parseInt(word[2]),
                        record(Integer.parseInt(word[3]), 0, 0), seconds(word[4]), Integer.parseInt(word[5]), keys);
                return "\"acked\": " + produced[0] + ", \"took_ns\": " + produced[1];
            case "one":
                return "\"latencies_ns\": " + one(size(word), seconds(word[2]));
            case "open":
                return open(size(word), Integer.parseInt(word[2]), Integer.parseInt(word[3]), seconds(word[4]));
            case "follow":
                follow(size(word), seconds(word[2]));
                return "";
            case "tail":
                return tail(size(word), Integer.parseInt(word[2]), Integer.parseInt(word[3]), seconds(word[4]));
            case "unfollow":
                AutoCloseable ending = following;
                following = () -> {};
                ending.close();
                return "";
            case "append-start":
                startAppending(size(word));
                return "";
            case "append-last":
                return "\"at_ns\": " + lastAckNs;
            case "append-stop":
                stopping = true;
                appending.join(TimeUnit.NANOSECONDS.toMillis(seconds(word[1])) + 1);
                synchronized (this) {
                    return "\"acks_ns\": " + acks + ", \"failed\": " + failed;
                }
            default:
                throw new IllegalArgumentException("unknown command " + word[0]);
        }
    }

    private static int size(String[] word) {
        return Integer.parseInt(word[1]);
    }

    private static long seconds(String word) {
        return (long) (Double.parseDouble(word) * 1e9);
    }

    // ---- the loops

    private long pump(int size, long durationNs, int inFlight) throws Exception {
        byte[] payload = record(size, 0, 0);
        Semaphore window = new Semaphore(inFlight);
        AtomicLong acked = new AtomicLong();
        AtomicReference<Throwable> refused = new AtomicReference<>();
        Done done = error -> {
            if (error == null) {
                acked.incrementAndGet();
            } else {
                refused.compareAndSet(null, error);
            }
            window.release();
        };
        long endNs = System.nanoTime() + durationNs;
        while (System.nanoTime() < endNs && refused.get() == null) {
            window.acquire();
            log.appendInBatches(payload, done);
        }
        window.acquire(inFlight);
        if (refused.get() != null) {
            throw new IllegalStateException("an append was refused", refused.get());
        }
        return acked.get();
    }

    private Samples one(int size, long durationNs) throws Exception {
        Samples latencies = new Samples(SAMPLES_MAX);
        long endNs = System.nanoTime() + durationNs;
        do {
            byte[] payload = record(size, latencies.count(), 0);
            long sentNs = System.nanoTime();
            log.append(payload);
            latencies.add(System.nanoTime() - sentNs);
        } while (System.nanoTime() < endNs);
        return latencies;
    }

    private String open(int size, int ratePerS, int count, long limitNs) throws Exception {
        Samples latencies = new Samples(count);
        Samples late = new Samples(count);
        atRate(ratePerS, count, (number, dueNs) -> {
            late.add(System.nanoTime() - dueNs);
            log.append(record(size, number, dueNs), error -> {
                if (error == null) {
                    latencies.add(System.nanoTime() - dueNs);
                }
            });
        });
        latencies.await(count, limitNs);
        return "\"latencies_ns\": " + latencies + ", \"late_ns\": " + late;
    }

    private void follow(int size, long limitNs) throws Exception {
        Samples ready = new Samples(1);
        delivery = (payload, seenNs) -> ready.add(seenNs);
        following = log.follow((payload, seenNs) -> delivery.call(payload, seenNs));
        long endNs = System.nanoTime() + limitNs;
        while (ready.count() == 0 && System.nanoTime() < endNs) {
            log.append(record(size, WARM_UP, 0));
            Thread.sleep(10);
        }
    }

    private String tail(int size, int ratePerS, int count, long limitNs) throws Exception {
        Samples latencies = new Samples(count);
        BitSet acked = new BitSet(count);
        AtomicLong early = new AtomicLong();
        delivery = (payload, seenNs) -> {
            ByteBuffer head = ByteBuffer.wrap(payload).order(ByteOrder.LITTLE_ENDIAN);
            long number = head.getLong();
            if (number == WARM_UP) {
                return;
            }
            synchronized (acked) {
                if (!acked.get((int) number)) {
                    early.incrementAndGet();
                }
            }
            latencies.add(seenNs - head.getLong()); // last: who waits for these counts the early ones then
        };
        atRate(ratePerS, count, (number, dueNs) -> log.append(record(size, number, dueNs), error -> {
            if (error == null) {
                synchronized (acked) {
                    acked.set(number);
                }
            }
        }));
        long endNs = System.nanoTime() + limitNs;
        while (!latencies.await(count, 10_000_000) && System.nanoTime() < endNs) {
            log.append(record(size, WARM_UP, 0)); // in some systems the confirm of a record travels with the next one
        }
        return "\"latencies_ns\": " + latencies + ", \"early\": " + early;
    }

    private void startAppending(int size) {
        acks = new Samples(SAMPLES_MAX);
        failed = 0;
        lastAckNs = 0;
        stopping = false;
        appending = new Thread(() -> {
            while (!stopping) {
                try {
                    log.append(record(size, acks.count(), 0));
                } catch (Exception error) {
                    synchronized (this) {
                        failed++;
                    }
                    LockSupport.parkNanos(2_000_000);
                    continue;
                }
                lastAckNs = System.nanoTime();
                acks.add(lastAckNs);
            }
        }, "appending");
        appending.setDaemon(true);
        appending.start();
    }

    // ---- parts

    private interface Due {
        void call(int number, long dueNs);
    }

    private static void atRate(int ratePerS, int count, Due due) {
        long startedNs = System.nanoTime();
        for (int number = 0; number < count; number++) {
            long dueNs = startedNs + number * 1_000_000_000L / ratePerS;
            for (long leftNs; (leftNs = dueNs - System.nanoTime()) > 0; ) {
                LockSupport.parkNanos(leftNs);
            }
            due.call(number, dueNs);
        }
    }

    private static final byte[] NOISE = noise();

    private static byte[] noise() {
        byte[] bytes = new byte[1 << 20];
        new Random().nextBytes(bytes);
        return bytes;
    }

    /** Bytes that do not compress: a number, a time and noise. */
    private static byte[] record(int size, long number, long stampNs) {
        byte[] payload = new byte[size];
        System.arraycopy(NOISE, 0, payload, 0, size);
        ByteBuffer.wrap(payload).order(ByteOrder.LITTLE_ENDIAN).putLong(number).putLong(stampNs);
        return payload;
    }

    /** Numbers from any thread; those beyond the capacity are dropped. */
    private static final class Samples {
        private final int capacity;
        private long[] values = new long[1024];
        private int count;

        Samples(int capacity) {
            this.capacity = capacity;
        }

        synchronized void add(long value) {
            if (count == capacity) {
                return;
            }
            if (count == values.length) {
                values = java.util.Arrays.copyOf(values, 2 * count);
            }
            values[count++] = value;
            notifyAll();
        }

        synchronized int count() {
            return count;
        }

        /** Waits until there are so many; false after the limit. */
        synchronized boolean await(int wanted, long limitNs) throws InterruptedException {
            long endNs = System.nanoTime() + limitNs;
            for (long leftNs; count < wanted && (leftNs = endNs - System.nanoTime()) > 0; ) {
                TimeUnit.NANOSECONDS.timedWait(this, Math.max(1_000_000, leftNs));
            }
            return count >= wanted;
        }

        @Override
        public synchronized String toString() {
            StringBuilder text = new StringBuilder(count * 9 + 2).append('[');
            for (int at = 0; at < count; at++) {
                text.append(at == 0 ? "" : ",").append(values[at]);
            }
            return text.append(']').toString();
        }
    }
}
