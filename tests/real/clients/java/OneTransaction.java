import java.util.Map;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.StringSerializer;

/** Commits transactions of one record: BOOTSTRAP TOPIC HOW-MANY. Prints "committed", or the class of the exception. */
public class OneTransaction {
    public static void main(String[] args) throws Exception {
        Map<String, Object> settings = Map.of("bootstrap.servers", args[0], "transactional.id", args[1],
            "max.block.ms", Patience.MS, "request.timeout.ms", (int) Patience.MS, "delivery.timeout.ms", (int) (2 * Patience.MS));
        try (var producer = new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer())) {
            producer.initTransactions();
            for (int number = 0; number < Integer.parseInt(args[2]); number++) {
                producer.beginTransaction();
                producer.send(new ProducerRecord<>(args[1], "one"));
                producer.commitTransaction();
            }
            System.out.println("committed");
        } catch (Exception failed) {
            Throwable cause = failed.getCause() == null ? failed : failed.getCause();
            System.out.println(cause.getClass().getSimpleName() + " " + cause.getMessage());
        }
        System.exit(0);
    }
}
