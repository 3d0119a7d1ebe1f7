import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
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
    private static final int FETCH_BYTES = 8 << 20;
    private static final int POLL_RECORDS = 5_000;
    private static final Duration POLL = Duration.ofMillis(200);
    private static final long WAIT_S = 60;

    private final String servers;
    private final Admin admin;
    private final KafkaProducer<byte[], byte[]> batching;
    private final KafkaProducer<byte[], byte[]> single;
    private int number;
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
        admin.createTopics(List.of(new NewTopic(topic(), 1, COPIES))).all().get(WAIT_S, TimeUnit.SECONDS);
        long endNs = System.nanoTime() + TimeUnit.SECONDS.toNanos(WAIT_S);
        while (!isWhole()) {
            if (System.nanoTime() > endNs) {
                throw new IllegalStateException("not all copies are in sync");
            }
            Thread.sleep(50);
        }
        first = 0;
        for (KafkaProducer<byte[], byte[]> producer : List.of(batching, single)) {
            first = 1 + producer.send(record(new byte[100])).get(WAIT_S, TimeUnit.SECONDS).offset();
        }
    }

    private boolean isWhole() throws Exception {
        try {
            TopicPartitionInfo partition = partition();
            return partition.leader() != null && partition.isr().size() == COPIES;
        } catch (ExecutionException notYet) {
            return false;
        }
    }

    private TopicPartitionInfo partition() throws Exception {
        return admin.describeTopics(List.of(topic())).allTopicNames().get(WAIT_S, TimeUnit.SECONDS).get(topic())
                .partitions().get(0);
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

    @Override
    public String inCharge() throws Exception {
        return "[\"" + partition().leader().idString() + "\"]";
    }
}
