import java.time.Duration;
import java.util.*;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.clients.producer.*;
import org.apache.kafka.common.serialization.*;

/** Reads one record of a topic as a share group (KIP-932), so that the broker keeps that group's state. */
public class ShareGroup {
    public static void main(String[] args) {
        Map<String, Object> config = Map.of("bootstrap.servers", args[0], "group.id", args[1]);
        try (KafkaShareConsumer<byte[], byte[]> consumer =
                 new KafkaShareConsumer<>(config, new ByteArrayDeserializer(), new ByteArrayDeserializer());
             KafkaProducer<byte[], byte[]> producer = new KafkaProducer<>(
                 Map.of("bootstrap.servers", args[0]), new ByteArraySerializer(), new ByteArraySerializer())) {
            consumer.subscribe(List.of(args[2]));
            long end = System.currentTimeMillis() + Patience.MS;
            int got = 0;
            // the group starts at the end of the topic, once it has its partitions
            while (got == 0 && System.currentTimeMillis() < end) {
                producer.send(new ProducerRecord<>(args[2], new byte[] {1}));
                got = consumer.poll(Duration.ofMillis(300)).count();
            }
            consumer.commitSync();
            System.out.println(got);
        }
    }
}
