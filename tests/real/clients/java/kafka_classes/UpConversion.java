import java.nio.ByteBuffer;
import java.util.HexFormat;
import java.util.Scanner;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.common.record.internal.CompressionType;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.record.internal.MutableRecordBatch;
import org.apache.kafka.common.utils.internals.BufferSupplier;
import org.apache.kafka.common.utils.internals.PrimitiveRef;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.storage.internals.log.AppendOrigin;
import org.apache.kafka.storage.internals.log.LogValidator;

/**
 * What a broker's log makes of a producer's records: LogValidator to magic 2, CRCs checked before as the log does.
 * A line each: "MAGIC HEX" answers hex, or "! " and the exception.
 */
public class UpConversion {
    private static final HexFormat HEX = HexFormat.of();

    public static void main(String[] args) {
        Scanner in = new Scanner(System.in);
        while (in.hasNext()) {
            try {
                System.out.println(up(in.nextByte(), MemoryRecords.readableRecords(ByteBuffer.wrap(HEX.parseHex(in.next())))));
            } catch (RuntimeException error) {
                System.out.println("! " + error.toString().replace('\n', ' '));
            }
        }
    }

    private static String up(byte magic, MemoryRecords records) {
        CompressionType source = CompressionType.NONE;
        for (MutableRecordBatch batch : records.batches()) {
            batch.ensureValid();
            if (batch.compressionType() != CompressionType.NONE)
                source = batch.compressionType();
        }
        LogValidator validator = new LogValidator(
            records, new TopicPartition("t", 0), Time.SYSTEM, source, Compression.of(source).build(), false, magic,
            TimestampType.CREATE_TIME, Long.MAX_VALUE, Long.MAX_VALUE, -1, AppendOrigin.CLIENT);
        ByteBuffer made = validator.validateMessagesAndAssignOffsets(
            PrimitiveRef.ofLong(0), new Nothing(), BufferSupplier.NO_CACHING).validatedRecords().buffer();
        byte[] bytes = new byte[made.remaining()];
        made.duplicate().get(bytes);
        return HEX.formatHex(bytes) + ".";
    }

    private static class Nothing implements LogValidator.MetricsRecorder {
        public void recordInvalidMagic() { }
        public void recordInvalidOffset() { }
        public void recordInvalidSequence() { }
        public void recordInvalidChecksums() { }
        public void recordNoKeyCompactedTopic() { }
    }
}
