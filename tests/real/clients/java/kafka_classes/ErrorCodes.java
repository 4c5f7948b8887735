import org.apache.kafka.common.errors.RetriableException;
import org.apache.kafka.common.protocol.Errors;

/** Prints Kafka's error table: code, name, and whether a client may retry. */
public class ErrorCodes {
    public static void main(String[] args) {
        for (Errors each : Errors.values()) {
            System.out.println(each.code() + " " + each + (each.exception() instanceof RetriableException ? " retriable" : ""));
        }
    }
}
