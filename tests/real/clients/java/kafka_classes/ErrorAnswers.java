import java.lang.reflect.Method;
import java.nio.ByteBuffer;
import java.util.HexFormat;
import java.util.Scanner;
import org.apache.kafka.common.message.ApiMessageType;
import org.apache.kafka.common.protocol.ApiKeys;
import org.apache.kafka.common.protocol.ApiMessage;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.protocol.ObjectSerializationCache;
import org.apache.kafka.common.requests.AbstractRequest;
import org.apache.kafka.common.requests.AbstractResponse;
import org.apache.kafka.common.requests.RequestAndSize;

/** Answers requests with an error as Kafka's brokers do. A line each: api key, version, error code, hex of the body. */
public class ErrorAnswers {
    public static void main(String[] args) throws Exception {
        Scanner in = new Scanner(System.in);
        HexFormat hex = HexFormat.of();
        Method parse = null;
        for (Method method : AbstractRequest.class.getMethods())
            if (method.getName().equals("parseRequest") && method.getParameterCount() == 3)
                parse = method;
        boolean buffers = parse.getParameterTypes()[2] == ByteBuffer.class;
        while (in.hasNext()) {
            short key = in.nextShort();
            short version = in.nextShort();
            short code = in.nextShort();
            String given = in.next();
            byte[] body = given.equals("-") ? new byte[0] : hex.parseHex(given);
            try {
                ApiMessageType type = ApiMessageType.fromApiKey(key);
                if (version < type.lowestSupportedVersion() || version > type.highestSupportedVersion(true)) {
                    System.out.println("-");
                    continue;
                }
                ByteBuffer bytes = ByteBuffer.wrap(body);
                Object source = buffers ? bytes : new ByteBufferAccessor(bytes);
                RequestAndSize request = (RequestAndSize) parse.invoke(null, ApiKeys.forId(key), version, source);
                AbstractResponse response = request.request.getErrorResponse(0, Errors.forCode(code).exception());
                if (response == null) {
                    System.out.println("null");
                    continue;
                }
                ApiMessage message = response.data();
                ObjectSerializationCache cache = new ObjectSerializationCache();
                ByteBuffer out = ByteBuffer.allocate(message.size(cache, version));
                message.write(new ByteBufferAccessor(out), cache, version);
                System.out.println(hex.formatHex(out.array(), 0, out.position()) + "x");
            } catch (Throwable error) {
                Throwable cause = error.getCause() == null ? error : error.getCause();
                System.out.println("! " + cause.toString().replace('\n', ' '));
            }
        }
    }
}
