import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.Semaphore;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicReference;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.TopicPartitionInfo;
import org.apache.kafka.common.errors.InterruptException;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * One partition with three copies as a log, acked by all copies in sync.
 *
 * <p>Its argument is the servers' addresses; it reads commands (see {@link Driver}).
 */
final class KafkaLog implements Driver.Log {
    private static final short COPIES = 3;
    private static final int LINGER_MS = 5;
    private static final int BATCH_BYTES = 1 << 20;
    private static final int SHARED_BATCH_BYTES = 1 << 16;
    private static final int FETCH_BYTES = 8 << 20;
    private static final int POLL_RECORDS = 5_000;
    private static final Duration POLL = Duration.ofMillis(200);
    private static final long WAIT_S = 60;

    private final String servers;
    private final Admin admin;
    private final KafkaProducer<byte[], byte[]> batching;
    private final KafkaProducer<byte[], byte[]> single;
    private int number;
    private int topics;
    private long first;

    private KafkaLog(String servers) {
        this.servers = servers;
        admin = Admin.create(Map.of("bootstrap.servers", servers));
        batching = producer(LINGER_MS, BATCH_BYTES);
        single = producer(0, 1 << 14);
    }

    private KafkaProducer<byte[], byte[]> producer(int lingerMs, int batchBytes) {
        Map<String, Object> settings = Map.of("bootstrap.servers", servers, "acks", "all", "enable.idempotence", true,
                "linger.ms", lingerMs, "batch.size", batchBytes);
        return new KafkaProducer<>(settings, new ByteArraySerializer(), new ByteArraySerializer());
    }

    public static void main(String[] arguments) throws Exception {
        new Driver(new KafkaLog(arguments[0])).serve();
        Runtime.getRuntime().halt(0); // without waiting for what is still to be sent
    }

    private String topic() {
        return "log" + number;
    }

    /** A record of each producer comes first, so that both know the leader; no reader gets these. */
    @Override
    public void fresh() throws Exception {
        if (number > 0) {
            admin.deleteTopics(List.of(topic())).all().get(WAIT_S, TimeUnit.SECONDS);
        }
        number++;
        make(topic(), 1);
        first = 0;
        for (KafkaProducer<byte[], byte[]> producer : List.of(batching, single)) {
            first = 1 + producer.send(record(new byte[100])).get(WAIT_S, TimeUnit.SECONDS).offset();
        }
    }

    private void make(String topic, int shards) throws Exception {
        admin.createTopics(List.of(new NewTopic(topic, shards, COPIES))).all().get(WAIT_S, TimeUnit.SECONDS);
        long endNs = System.nanoTime() + TimeUnit.SECONDS.toNanos(WAIT_S);
        while (!isWhole(topic)) {
            if (System.nanoTime() > endNs) {
                throw new IllegalStateException("not all copies are in sync");
            }
            Thread.sleep(50);
        }
    }

    private boolean isWhole(String topic) throws Exception {
        try {
            return partitions(topic).stream().allMatch(each -> each.leader() != null && each.isr().size() == COPIES);
        } catch (ExecutionException notYet) {
            return false;
        }
    }

    private List<TopicPartitionInfo> partitions(String topic) throws Exception {
        return admin.describeTopics(List.of(topic)).allTopicNames().get(WAIT_S, TimeUnit.SECONDS).get(topic).partitions();
    }

    private ProducerRecord<byte[], byte[]> record(byte[] payload) {
        return new ProducerRecord<>(topic(), 0, null, payload);
    }

    @Override
    public void append(byte[] payload, Driver.Done done) {
        single.send(record(payload), (metadata, error) -> done.call(error));
    }

    @Override
    public void appendInBatches(byte[] payload, Driver.Done done) {
        batching.send(record(payload), (metadata, error) -> done.call(error));
    }

    @Override
    public void append(byte[] payload) throws Exception {
        single.send(record(payload)).get();
    }

    private KafkaConsumer<byte[], byte[]> consumer() {
        Map<String, Object> settings = Map.of("bootstrap.servers", servers, "enable.auto.commit", false,
                "max.partition.fetch.bytes", FETCH_BYTES, "max.poll.records", POLL_RECORDS);
        return new KafkaConsumer<>(settings, new ByteArrayDeserializer(), new ByteArrayDeserializer());
    }

    @Override
    public long[] read(long count) {
        TopicPartition partition = new TopicPartition(topic(), 0);
        long came = 0;
        long bytes = 0;
        long endNs = System.nanoTime() + TimeUnit.SECONDS.toNanos(4 * WAIT_S);
        try (KafkaConsumer<byte[], byte[]> consumer = consumer()) {
            consumer.assign(List.of(partition));
            consumer.seek(partition, first);
            while (came < count && System.nanoTime() < endNs) {
                for (ConsumerRecord<byte[], byte[]> record : consumer.poll(POLL)) {
                    if (came < count) {
                        came++;
                        bytes += record.value().length;
                    }
                }
            }
        }
        return new long[] {came, bytes};
    }

    @Override
    public AutoCloseable follow(Driver.Delivery delivery) {
        TopicPartition partition = new TopicPartition(topic(), 0);
        KafkaConsumer<byte[], byte[]> consumer = consumer();
        consumer.assign(List.of(partition));
        consumer.seekToEnd(List.of(partition));
        consumer.position(partition);
        Thread reader = new Thread(() -> {
            try (consumer) {
                while (!Thread.currentThread().isInterrupted()) {
                    for (ConsumerRecord<byte[], byte[]> record : consumer.poll(POLL)) {
                        delivery.call(record.value(), System.nanoTime());
                    }
                }
            } catch (InterruptException closed) {
                Thread.currentThread().interrupt();
            }
        }, "reader");
        reader.setDaemon(true);
        reader.start();
        return () -> {
            reader.interrupt();
            reader.join(TimeUnit.SECONDS.toMillis(5));
        };
    }

    /** Each producer in a thread of its own; a record to each partition comes first, so that all know the leaders. */
    @Override
    public long[] produce(int producers, int shards, byte[] payload, long durationNs, int inFlight, byte[][] keys)
            throws Exception {
        String topic = "topic" + ++topics;
        make(topic, shards);
        List<KafkaProducer<byte[], byte[]>> all = new ArrayList<>();
        ExecutorService threads = Executors.newFixedThreadPool(producers);
        try {
            for (int i = 0; i < producers; i++) {
                all.add(producer(LINGER_MS, SHARED_BATCH_BYTES));
            }
            List<Future<?>> warming = new ArrayList<>();
            for (KafkaProducer<byte[], byte[]> producer : all) {
                for (int shard = 0; shard < shards; shard++) {
                    warming.add(producer.send(new ProducerRecord<>(topic, shard, null, payload)));
                }
            }
            for (Future<?> each : warming) {
                each.get(WAIT_S, TimeUnit.SECONDS);
            }
            long startedNs = System.nanoTime();
            List<Future<Long>> counts = new ArrayList<>();
            for (KafkaProducer<byte[], byte[]> producer : all) {
                counts.add(threads.submit(() -> produce(producer, topic, payload, startedNs + durationNs, inFlight, keys)));
            }
            long acked = 0;
            for (Future<Long> each : counts) {
                acked += each.get();
            }
            return new long[] {acked, System.nanoTime() - startedNs};
        } finally {
            threads.shutdownNow();
            for (KafkaProducer<byte[], byte[]> producer : all) {
                producer.close(Duration.ZERO);
            }
            admin.deleteTopics(List.of(topic)).all().get(WAIT_S, TimeUnit.SECONDS);
        }
    }

    private static long produce(KafkaProducer<byte[], byte[]> producer, String topic, byte[] payload, long endNs, int inFlight,
            byte[][] keys) throws Exception {
        Semaphore window = new Semaphore(inFlight);
        AtomicReference<Exception> refused = new AtomicReference<>();
        long sent = 0;
        while (System.nanoTime() < endNs && refused.get() == null) {
            window.acquire();
            byte[] key = keys.length == 0 ? null : keys[(int) (sent % keys.length)];
            producer.send(new ProducerRecord<>(topic, key, payload), (metadata, error) -> {
                if (error != null) {
                    refused.compareAndSet(null, error);
                }
                window.release();
            });
            sent++;
        }
        window.acquire(inFlight);
        if (refused.get() != null) {
            throw new IllegalStateException("a record was refused", refused.get());
        }
        return sent;
    }

    @Override
    public String inCharge() throws Exception {
        return "[\"" + partitions(topic()).get(0).leader().idString() + "\"]";
    }
}
