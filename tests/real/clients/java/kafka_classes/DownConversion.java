import java.nio.ByteBuffer;
import java.util.HexFormat;
import java.util.Scanner;
import java.util.StringJoiner;
import org.apache.kafka.common.record.MemoryRecords;
import org.apache.kafka.common.record.MutableRecordBatch;
import org.apache.kafka.common.record.Record;
import org.apache.kafka.common.utils.Time;

/**
 * Kafka's own down-conversion, and its reader, with the classes of a release before 4.0. A line each:
 * "down MAGIC FIRST_OFFSET HEX" answers hex; "read HEX" answers "offset:timestamp:key:value" per record, every CRC checked.
 */
public class DownConversion {
    private static final HexFormat HEX = HexFormat.of();

    public static void main(String[] args) {
        Scanner in = new Scanner(System.in);
        while (in.hasNext()) {
            boolean down = in.next().equals("down");
            byte magic = down ? in.nextByte() : 0;
            long first = down ? in.nextLong() : 0;
            try {
                MemoryRecords records = MemoryRecords.readableRecords(ByteBuffer.wrap(HEX.parseHex(in.next())));
                System.out.println(down ? down(records, magic, first) : read(records));
            } catch (RuntimeException error) {
                System.out.println("! " + error.toString().replace('\n', ' '));
            }
        }
    }

    private static String down(MemoryRecords records, byte magic, long first) {
        MemoryRecords converted = (MemoryRecords) records.downConvert(magic, first, Time.SYSTEM).records();
        byte[] bytes = new byte[converted.buffer().remaining()];
        converted.buffer().duplicate().get(bytes);
        return HEX.formatHex(bytes) + ".";
    }

    private static String read(MemoryRecords records) {
        StringJoiner rows = new StringJoiner(" ", "", ".");
        for (MutableRecordBatch batch : records.batches()) {
            batch.ensureValid();
            for (Record record : batch) {
                record.ensureValid();
                rows.add(record.offset() + ":" + record.timestamp() + ":" + text(record.key()) + ":" + text(record.value()));
            }
        }
        return rows.toString();
    }

    private static String text(ByteBuffer buffer) {
        if (buffer == null)
            return "null";
        byte[] bytes = new byte[buffer.remaining()];
        buffer.duplicate().get(bytes);
        return HEX.formatHex(bytes);
    }
}
