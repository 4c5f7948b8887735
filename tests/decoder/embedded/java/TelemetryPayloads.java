import java.util.HexFormat;
import java.nio.ByteBuffer;
import org.apache.kafka.common.record.internal.CompressionType;
import org.apache.kafka.common.telemetry.internals.ClientTelemetryUtils;
import org.apache.kafka.shaded.com.google.protobuf.ByteString;
import org.apache.kafka.shaded.io.opentelemetry.proto.common.v1.*;
import org.apache.kafka.shaded.io.opentelemetry.proto.metrics.v1.*;
import org.apache.kafka.shaded.io.opentelemetry.proto.resource.v1.Resource;

/** Writes a telemetry push with the classes that Kafka's clients use. Made telemetry_payloads.txt, which says how. */
public class TelemetryPayloads {
    static KeyValue attribute(String key, AnyValue.Builder value) {
        return KeyValue.newBuilder().setKey(key).setValue(value).build();
    }

    static AnyValue.Builder text(String value) {
        return AnyValue.newBuilder().setStringValue(value);
    }

    static Metric.Builder metric(String name) {
        return Metric.newBuilder().setName("org.apache.kafka." + name);
    }

    public static void main(String[] args) throws Exception {
        NumberDataPoint.Builder point = NumberDataPoint.newBuilder().setTimeUnixNano(1700000000123456789L)
            .setStartTimeUnixNano(1700000000000000000L).addAttributes(attribute("client_rack", text("rack-a")));
        ScopeMetrics.Builder scope = ScopeMetrics.newBuilder().setScope(InstrumentationScope.newBuilder()
            .setName("org.apache.kafka").setVersion("4.3.1").addAttributes(attribute("kept", AnyValue.newBuilder().setBoolValue(true))));
        scope.addMetrics(metric("consumer.poll.idle.ratio.avg").setUnit("1").setDescription("idle")
            .setGauge(Gauge.newBuilder().addDataPoints(point.clone().setAsDouble(0.25))));
        scope.addMetrics(metric("producer.record.send.total").setSum(Sum.newBuilder().setIsMonotonic(true)
            .setAggregationTemporality(AggregationTemporality.AGGREGATION_TEMPORALITY_DELTA)
            .addDataPoints(point.clone().setAsInt(-5).setFlags(1)
                .addExemplars(Exemplar.newBuilder().setAsDouble(1.5).setSpanId(ByteString.copyFrom(new byte[] {1, 2}))))));
        scope.addMetrics(metric("latency").setHistogram(Histogram.newBuilder()
            .setAggregationTemporality(AggregationTemporality.AGGREGATION_TEMPORALITY_CUMULATIVE)
            .addDataPoints(HistogramDataPoint.newBuilder().setCount(3).setSum(4.5).addBucketCounts(1).addBucketCounts(2)
                .addExplicitBounds(2.5).setMin(0.5).setMax(3))));
        scope.addMetrics(metric("sizes").setExponentialHistogram(ExponentialHistogram.newBuilder()
            .addDataPoints(ExponentialHistogramDataPoint.newBuilder().setCount(9).setScale(-3).setZeroCount(1)
                .setPositive(ExponentialHistogramDataPoint.Buckets.newBuilder().setOffset(-2).addBucketCounts(300).addBucketCounts(0)))));
        scope.addMetrics(metric("quantiles").setSummary(Summary.newBuilder().addDataPoints(SummaryDataPoint.newBuilder()
            .setCount(2).setSum(7).addQuantileValues(SummaryDataPoint.ValueAtQuantile.newBuilder().setQuantile(0.99).setValue(6)))));
        MetricsData data = MetricsData.newBuilder().addResourceMetrics(ResourceMetrics.newBuilder().setSchemaUrl("url")
            .setResource(Resource.newBuilder().addAttributes(attribute("list", AnyValue.newBuilder().setArrayValue(
                    ArrayValue.newBuilder().addValues(text("x")).addValues(AnyValue.newBuilder().setIntValue(-7)))))
                .addAttributes(attribute("map", AnyValue.newBuilder().setKvlistValue(
                    KeyValueList.newBuilder().addValues(attribute("pi", AnyValue.newBuilder().setDoubleValue(3.5))))))
                .addAttributes(attribute("raw", AnyValue.newBuilder().setBytesValue(ByteString.copyFrom(new byte[] {0, (byte) 255})))))
            .addScopeMetrics(scope)).build();
        for (CompressionType type : CompressionType.values()) {
            ByteBuffer buffer = ClientTelemetryUtils.compress(data, type);
            byte[] bytes = new byte[buffer.remaining()];
            buffer.get(bytes);
            System.out.println(type.name + " " + type.id + " " + HexFormat.of().formatHex(bytes));
        }
    }
}
