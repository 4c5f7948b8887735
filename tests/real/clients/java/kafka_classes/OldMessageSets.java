import java.lang.reflect.Method;
import java.nio.ByteBuffer;
import java.util.HexFormat;
import java.util.Scanner;
import java.util.StringJoiner;
import kafka.message.ByteBufferMessageSet;
import kafka.message.Message;
import kafka.message.MessageAndOffset;
import org.apache.kafka.common.record.CompressionType;
import org.apache.kafka.common.record.MemoryRecords;

/**
 * Message sets as the consumers (Scala) of 0.8 to 0.10 read them, and the producers (Java) write them. A line each:
 * "read HEX" answers "offset:timestamp:key:value" per record, every CRC checked (the time is -1 where it has none);
 * "write CODEC COUNT SEED" answers the hex of a producer's batch.
 */
public class OldMessageSets {
    private static final HexFormat HEX = HexFormat.of();

    public static void main(String[] args) {
        Scanner in = new Scanner(System.in);
        while (in.hasNext()) {
            try {
                if (in.next().equals("read"))
                    System.out.println(read(ByteBuffer.wrap(HEX.parseHex(in.next()))));
                else
                    System.out.println(write(CompressionType.valueOf(in.next()), in.nextInt(), in.nextLong()));
            } catch (Exception error) {
                System.out.println("! " + error.toString().replace('\n', ' '));
            }
        }
    }

    private static String read(ByteBuffer buffer) throws Exception {
        Method timestamp = null;
        for (Method method : Message.class.getMethods())
            if (method.getName().equals("timestamp"))
                timestamp = method;
        StringJoiner rows = new StringJoiner(" ", "", ".");
        scala.collection.Iterator<MessageAndOffset> entries = new ByteBufferMessageSet(buffer).iterator();
        while (entries.hasNext()) {
            MessageAndOffset entry = entries.next();
            Message message = entry.message();
            message.ensureValid();
            long time = timestamp == null ? -1 : (long) timestamp.invoke(message);
            rows.add(entry.offset() + ":" + time + ":" + text(message.key()) + ":" + text(message.payload()));
        }
        return rows.toString();
    }

    private static String write(CompressionType codec, int count, long seed) throws Exception {
        ByteBuffer buffer = ByteBuffer.allocate(1 << 20);
        Object records;
        Method append;
        try {
            records = MemoryRecords.class.getMethod("emptyRecords", ByteBuffer.class, CompressionType.class)
                .invoke(null, buffer, codec);
            append = records.getClass().getMethod("append", long.class, byte[].class, byte[].class);
        } catch (NoSuchMethodException newer) {
            Class<?> type = Class.forName("org.apache.kafka.common.record.TimestampType");
            records = MemoryRecords.class.getMethod("builder", ByteBuffer.class, CompressionType.class, type)
                .invoke(null, buffer, codec, type.getEnumConstants()[1]);
            append = records.getClass().getMethod("append", long.class, byte[].class, byte[].class);
        }
        for (int i = 0; i < count; i++) {
            byte[] key = i % 3 == 0 ? null : ("key-" + (seed + i)).getBytes();
            byte[] value = i % 7 == 0 ? null : ("value " + seed + " ").repeat(i * 5).getBytes();
            // the first argument is the offset in the older, the time in the newer
            append.invoke(records, i + (append.getReturnType() == void.class ? 0 : seed), key, value);
        }
        ByteBuffer made;
        if (append.getReturnType() == void.class) {
            MemoryRecords.class.getMethod("close").invoke(records);
            made = ((MemoryRecords) records).buffer();
            made.flip();
        } else {
            made = ((MemoryRecords) records.getClass().getMethod("build").invoke(records)).buffer();
        }
        return text(made) + ".";
    }

    private static String text(ByteBuffer buffer) {
        if (buffer == null)
            return "null";
        byte[] bytes = new byte[buffer.remaining()];
        buffer.duplicate().get(bytes);
        return HEX.formatHex(bytes);
    }
}
