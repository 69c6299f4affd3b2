import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.rabbitmq.client.ConnectionFactory;
import com.rabbitmq.client.Delivery;
import com.rabbitmq.client.LongString;
import io.debezium.data.Envelope;
import io.debezium.data.Json;
import io.debezium.data.Uuid;
import io.debezium.transforms.outbox.EventRouter;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.time.Instant;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.connect.data.Schema;
import org.apache.kafka.connect.data.SchemaBuilder;
import org.apache.kafka.connect.data.Struct;
import org.apache.kafka.connect.header.Header;
import org.apache.kafka.connect.json.JsonConverter;
import org.apache.kafka.connect.source.SourceRecord;

/**
 * What Debezium's event router makes of rows, beside the messages of a queue.
 *
 *     PORT QUEUE PLACEMENT    a line of JSON for each line of standard input, which is a row: id, aggregatetype,
 *                             aggregateid, type, payload (a text). "router" is what the router makes of it, with its
 *                             headers as texts and as the default converter of Debezium Server writes them (without
 *                             schemas), "message" the message of the queue with that id
 *
 * Headers of messages are those that are texts. The transformation is Debezium's own, on the record that a connector emits for an INSERT.
 */
public class Main {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final Schema ROW = SchemaBuilder.struct().name("outbox.Value")
        .field("id", Uuid.schema())
        .field("aggregatetype", Schema.OPTIONAL_STRING_SCHEMA)
        .field("aggregateid", Schema.OPTIONAL_STRING_SCHEMA)
        .field("type", Schema.STRING_SCHEMA)
        .field("payload", Json.builder().optional().build())
        .build();
    private static final Schema SOURCE = SchemaBuilder.struct().field("table", Schema.STRING_SCHEMA).build();

    private static final EventRouter<SourceRecord> router = new EventRouter<>();
    private static final JsonConverter converter = new JsonConverter();

    public static void main(String[] args) throws Exception {
        router.configure(Map.of("table.fields.additional.placement", args[2]));
        converter.configure(Map.of("schemas.enable", "false", "converter.type", "header"), false);

        var rows = new ArrayList<JsonNode>();
        try (var in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8))) {
            for (String line = in.readLine(); line != null; line = in.readLine()) {
                rows.add(JSON.readTree(line));
            }
        }

        var factory = new ConnectionFactory();
        factory.setPort(Integer.parseInt(args[0]));
        try (var connection = factory.newConnection()) {
            var deliveries = new LinkedBlockingQueue<Delivery>();
            var messages = new HashMap<String, Delivery>();

            connection.createChannel().basicConsume(args[1], true, (tag, delivery) -> deliveries.add(delivery), tag -> { });
            while (messages.size() < rows.size()) {
                Delivery delivery = deliveries.poll(60, TimeUnit.SECONDS);
                messages.put(delivery.getProperties().getMessageId(), delivery);
            }
            for (JsonNode row : rows) {
                var message = received(messages.get(row.get("id").textValue()));
                System.out.println(JSON.writeValueAsString(Map.of("router", routed(row), "message", message)));
            }
        }
    }

    private static SourceRecord inserted(JsonNode row) {
        var after = new Struct(ROW);

        row.fields().forEachRemaining(field -> after.put(field.getKey(), field.getValue().textValue()));
        var envelope = Envelope.defineSchema().withName("outbox.Envelope").withRecord(ROW).withSource(SOURCE).build();
        var value = envelope.create(after, new Struct(SOURCE).put("table", "outbox"), Instant.now());
        return new SourceRecord(Map.of(), Map.of(), "server.public.outbox", envelope.schema(), value);
    }

    private static Map<String, Object> routed(JsonNode row) {
        SourceRecord record = router.apply(inserted(row));
        var texts = new TreeMap<String, Object>();
        var quoted = new TreeMap<String, Object>();

        for (Header header : record.headers()) {
            byte[] json = converter.fromConnectHeader(record.topic(), header.key(), header.schema(), header.value());
            texts.put(header.key(), header.value());
            quoted.put(header.key(), new String(json, StandardCharsets.UTF_8));
        }
        var shown = new LinkedHashMap<String, Object>();
        shown.put("topic", record.topic());
        shown.put("key", record.key());
        shown.put("texts", texts);
        shown.put("quoted", quoted);
        shown.put("body", record.value());
        return shown;
    }

    private static Map<String, Object> received(Delivery delivery) {
        var headers = new TreeMap<String, Object>();

        delivery.getProperties().getHeaders().forEach((name, value) -> {
            if (value instanceof LongString) {
                headers.put(name, value.toString());
            }
        });
        var shown = new LinkedHashMap<String, Object>();
        shown.put("exchange", delivery.getEnvelope().getExchange());
        shown.put("routing_key", delivery.getEnvelope().getRoutingKey());
        shown.put("headers", headers);
        shown.put("body", new String(delivery.getBody(), StandardCharsets.UTF_8));
        return shown;
    }
}
