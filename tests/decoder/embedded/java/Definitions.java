import java.lang.reflect.Method;
import java.nio.ByteBuffer;
import java.util.HexFormat;
import java.util.Scanner;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.protocol.Message;
import org.apache.kafka.common.protocol.ObjectSerializationCache;

/** Reads payloads with Kafka's own classes, a line each: class name, version, hex. Answers what they read and write. */
public class Definitions {
    static final String[] PACKAGES = {
        "common.message", "common.metadata", "coordinator.group.generated", "coordinator.transaction.generated",
        "coordinator.share.generated", "server.log.remote.metadata.storage.generated", "raft.generated",
        "storage.internals.log", "streams.internals.generated",
    };

    static Class<?> find(String name) {
        for (String each : PACKAGES) {
            try {
                return Class.forName("org.apache.kafka." + each + "." + name);
            } catch (ClassNotFoundException elsewhere) {
                // try the next
            }
        }
        return null;
    }

    public static void main(String[] args) throws Exception {
        Scanner in = new Scanner(System.in);
        HexFormat hex = HexFormat.of();
        while (in.hasNext()) {
            String name = in.next();
            short version = in.nextShort();
            String given = in.next();
            Class<?> type = find(name);
            if (type == null || !Message.class.isAssignableFrom(type)) {
                System.out.println("-");
                continue;
            }
            try {
                Message message = (Message) type.getDeclaredConstructor().newInstance();
                if (version < message.lowestSupportedVersion() || version > message.highestSupportedVersion()) {
                    System.out.println("-");
                    continue;
                }
                ByteBuffer buffer = ByteBuffer.wrap(given.equals("-") ? new byte[0] : hex.parseHex(given));
                message.read(new ByteBufferAccessor(buffer), version);
                ObjectSerializationCache cache = new ObjectSerializationCache();
                ByteBuffer out = ByteBuffer.allocate(message.size(cache, version));
                message.write(new ByteBufferAccessor(out), cache, version);
                Class<?> converter = find(name + "JsonConverter");
                Object text = "{}";
                if (converter != null) {
                    Method write = converter.getMethod("write", type, short.class);
                    text = write.invoke(null, message, version);
                }
                System.out.println(buffer.remaining() + " " + hex.formatHex(out.array()) + "x " + text);
            } catch (Throwable error) {
                System.out.println("! " + error.toString().replace('\n', ' '));
            }
        }
    }
}
