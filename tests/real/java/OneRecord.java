// Sends one record: java -cp JARS OneRecord.java BOOTSTRAP TOPIC. Prints "sent", or the class of the exception.

import java.util.Map;
import java.util.concurrent.ExecutionException;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.serialization.StringSerializer;

public class OneRecord {
    public static void main(String[] args) throws Exception {
        Map<String, Object> settings = Map.of(
            "bootstrap.servers", args[0], "max.block.ms", 3000, "request.timeout.ms", 1500, "delivery.timeout.ms", 3000);
        try (var producer = new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer())) {
            producer.send(new ProducerRecord<>(args[1], "one")).get();
            System.out.println("sent");
        } catch (ExecutionException | KafkaException failed) {
            System.out.println(failed.getCause().getClass().getSimpleName() + " " + failed.getCause().getMessage());
        }
        System.exit(0);
    }
}
