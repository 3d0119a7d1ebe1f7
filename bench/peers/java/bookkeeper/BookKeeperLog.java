import java.util.EnumSet;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.Semaphore;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.atomic.AtomicReference;
import java.util.stream.Collectors;
import org.apache.bookkeeper.client.BookKeeperAdmin;
import org.apache.bookkeeper.client.api.BookKeeper;
import org.apache.bookkeeper.client.api.DigestType;
import org.apache.bookkeeper.client.api.LedgerEntries;
import org.apache.bookkeeper.client.api.LedgerEntry;
import org.apache.bookkeeper.client.api.ReadHandle;
import org.apache.bookkeeper.client.api.WriteFlag;
import org.apache.bookkeeper.client.api.WriteHandle;
import org.apache.bookkeeper.conf.ClientConfiguration;
import org.apache.bookkeeper.conf.ServerConfiguration;

/**
 * One ledger as a log: on three bookies, an entry for each record, acked once two have flushed it.
 *
 * <p>Arguments: `init URI` makes the metadata, `serve URI` reads commands (see {@link Driver}).
 */
final class BookKeeperLog implements Driver.Log {
    private static final int BOOKIES = 3;
    private static final int ACKS = 2;
    private static final byte[] PASSWORD = {};
    private static final int READ_BYTES = 1 << 20;
    private static final int READ_ENTRIES_MAX = 1_000;
    private static final int READS_UNDER_WAY = 8;
    private static final int READ_REPLY_BYTES_MAX = 4 << 20;
    private static final int POLL_NS = 200_000;
    private static final long STOP_MS_MAX = 5_000;

    private final BookKeeper client;
    private WriteHandle ledger;
    private int recordSize = 1;

    private BookKeeperLog(String uri) throws Exception {
        client = BookKeeper.newBuilder(configuration(uri)).build();
    }

    /** As Pulsar has it where that differs from the defaults: no throttle (5,000 appends/s), the second protocol. */
    private static ClientConfiguration configuration(String uri) {
        ClientConfiguration configuration = new ClientConfiguration();
        configuration.setMetadataServiceUri(uri);
        configuration.setThrottleValue(0);
        configuration.setUseV2WireProtocol(true);
        configuration.setAddEntryTimeout(30); // an add that fails ends the ledger where no bookie is left over
        return configuration;
    }

    public static void main(String[] arguments) throws Exception {
        if (arguments[0].equals("init")) {
            ServerConfiguration configuration = new ServerConfiguration();
            configuration.setMetadataServiceUri(arguments[1]);
            System.exit(BookKeeperAdmin.initNewCluster(configuration) ? 0 : 1);
        }
        new Driver(new BookKeeperLog(arguments[1])).serve();
        System.exit(0);
    }

    @Override
    public void fresh() throws Exception {
        if (ledger != null) {
            long old = ledger.getId();
            ledger.close();
            client.newDeleteLedgerOp().withLedgerId(old).execute().get();
        }
        ledger = client.newCreateLedgerOp().withEnsembleSize(BOOKIES).withWriteQuorumSize(BOOKIES).withAckQuorumSize(ACKS)
                .withDigestType(DigestType.CRC32C).withPassword(PASSWORD).withWriteFlags(EnumSet.noneOf(WriteFlag.class))
                .execute().get();
    }

    @Override
    public void append(byte[] payload, Driver.Done done) {
        recordSize = payload.length;
        ledger.appendAsync(payload).whenComplete((entry, error) -> done.call(error));
    }

    @Override
    public void append(byte[] payload) throws Exception {
        recordSize = payload.length;
        ledger.append(payload);
    }

    /** The writer knows the last entry to be acked; the bookies learn it with the next one: so "unconfirmed". */
    @Override
    public long[] read(long count) throws Exception {
        ReadHandle handle = open();
        try {
            boolean oneEnsemble = handle.getLedgerMetadata().getAllEnsembles().size() == 1;
            int batch = Math.max(1, Math.min(READ_ENTRIES_MAX, READ_BYTES / recordSize));
            Semaphore window = new Semaphore(READS_UNDER_WAY);
            AtomicReference<Throwable> failed = new AtomicReference<>();
            Sum sum = new Sum();
            for (long next = 0; next < count && failed.get() == null; next += batch) {
                window.acquire();
                long last = Math.min(count, next + batch) - 1;
                span(handle, next, last, oneEnsemble, sum).whenComplete((none, error) -> {
                    if (error != null) {
                        failed.compareAndSet(null, error);
                    }
                    window.release();
                });
            }
            window.acquire(READS_UNDER_WAY);
            if (failed.get() != null) {
                throw new IllegalStateException("a read failed", failed.get());
            }
            return new long[] {sum.records.get(), sum.bytes.get()};
        } finally {
            handle.close();
        }
    }

    private ReadHandle open() throws Exception {
        return client.newOpenLedgerOp().withLedgerId(ledger.getId()).withDigestType(DigestType.CRC32C).withPassword(PASSWORD)
                .withRecovery(false).execute().get();
    }

    /** Reads [first, last]; with one request for as many as fit where the ledger never changed its bookies. */
    private CompletableFuture<Void> span(ReadHandle handle, long first, long last, boolean batched, Sum sum) {
        CompletableFuture<LedgerEntries> reading = batched
                ? handle.batchReadUnconfirmedAsync(first, (int) (last - first + 1), READ_REPLY_BYTES_MAX)
                : handle.readUnconfirmedAsync(first, last);
        return reading.thenCompose(entries -> {
            long next = first;
            try (entries) {
                for (LedgerEntry entry : entries) {
                    sum.bytes.addAndGet(entry.getEntryBytes().length);
                    sum.records.incrementAndGet();
                    next++;
                }
            }
            if (next == first) {
                throw new IllegalStateException("an empty reply");
            }
            return next > last ? CompletableFuture.completedFuture(null) : span(handle, next, last, batched, sum);
        });
    }

    private static final class Sum {
        final AtomicLong records = new AtomicLong();
        final AtomicLong bytes = new AtomicLong();
    }

    @Override
    public AutoCloseable follow(Driver.Delivery delivery) throws Exception {
        ReadHandle handle = open();
        long first = ledger.getLastAddPushed() + 1;
        Thread reader = new Thread(() -> {
            try {
                deliver(handle, first, delivery);
            } catch (InterruptedException closed) {
                Thread.currentThread().interrupt();
            } catch (Exception error) {
                error.printStackTrace();
            }
        }, "reader");
        reader.setDaemon(true);
        reader.start();
        return () -> {
            reader.interrupt();
            reader.join(STOP_MS_MAX);
            handle.close();
        };
    }

    /**
     * Asks for the last confirmed entry again and again, and for all up to it at once. The client's long poll is the
     * documented way, but came back at its time-out only: a second late.
     */
    private static void deliver(ReadHandle handle, long first, Driver.Delivery delivery) throws Exception {
        long next = first;
        while (true) {
            long confirmed = handle.tryReadLastAddConfirmed();
            if (confirmed < next) {
                Thread.sleep(0, POLL_NS);
                continue;
            }
            int many = (int) Math.min(READ_ENTRIES_MAX, confirmed - next + 1);
            try (LedgerEntries entries = handle.batchRead(next, many, READ_REPLY_BYTES_MAX)) {
                for (LedgerEntry entry : entries) {
                    delivery.call(entry.getEntryBytes(), System.nanoTime());
                    next++;
                }
            }
        }
    }

    @Override
    public String inCharge() {
        List<?> bookies = ledger.getLedgerMetadata().getAllEnsembles().lastEntry().getValue();
        return bookies.stream().map(bookie -> "\"" + bookie + "\"").collect(Collectors.joining(", ", "[", "]"));
    }
}
