import java.lang.reflect.Method;
import java.nio.ByteBuffer;
import java.util.HexFormat;
import java.util.Scanner;
import org.apache.kafka.common.protocol.ApiMessage;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.protocol.ObjectSerializationCache;
import org.apache.kafka.common.message.ApiMessageType;

/** Reads bodies with Kafka's own classes, a line each: kind, api key, version, hex. Answers what they read and write. */
public class Wire {
    public static void main(String[] args) {
        Scanner in = new Scanner(System.in);
        HexFormat hex = HexFormat.of();
        while (in.hasNext()) {
            String kind = in.next();
            short key = in.nextShort();
            short version = in.nextShort();
            String given = in.next();
            byte[] body = given.equals("-") ? new byte[0] : hex.parseHex(given);
            ApiMessageType type = null;
            try {
                type = ApiMessageType.fromApiKey(key);
            } catch (RuntimeException unknown) {
                // not in this release
            }
            if (type == null || version < type.lowestSupportedVersion() || version > type.highestSupportedVersion(true)) {
                System.out.println("-");
                continue;
            }
            try {
                ApiMessage message = kind.equals("request") ? type.newRequest() : type.newResponse();
                ByteBuffer buffer = ByteBuffer.wrap(body);
                message.read(new ByteBufferAccessor(buffer), version);
                ObjectSerializationCache cache = new ObjectSerializationCache();
                ByteBuffer out = ByteBuffer.allocate(message.size(cache, version));
                message.write(new ByteBufferAccessor(out), cache, version);
                Class<?> converter = Class.forName(message.getClass().getName() + "JsonConverter");
                Method write = converter.getMethod("write", message.getClass(), short.class);
                System.out.println(buffer.remaining() + " " + hex.formatHex(out.array()) + "x " + write.invoke(null, message, version));
            } catch (Throwable error) {
                System.out.println("! " + error.toString().replace('\n', ' '));
            }
        }
    }
}
