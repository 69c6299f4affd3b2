import com.fasterxml.jackson.databind.ObjectMapper;
import com.rabbitmq.client.ConnectionFactory;
import com.rabbitmq.client.Delivery;
import com.rabbitmq.client.LongString;
import io.cloudevents.CloudEvent;
import io.cloudevents.amqp.ProtonAmqpMessageFactory;
import io.cloudevents.core.message.MessageReader;
import io.vertx.core.Vertx;
import io.vertx.proton.ProtonClient;
import java.time.Instant;
import java.time.temporal.ChronoUnit;
import java.util.Base64;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.apache.qpid.proton.amqp.Binary;
import org.apache.qpid.proton.amqp.messaging.ApplicationProperties;
import org.apache.qpid.proton.amqp.messaging.Data;

/**
 * Events of a queue, as the SDK of CloudEvents for Java reads them.
 *
 *     1.0|0-9-1 PORT QUEUE N    one line of JSON for each: attributes, time in microseconds, data in base64
 *
 * The SDK has a binding for AMQP 1.0, which RabbitMQ speaks with the plugin rabbitmq_amqp1_0 and, since 4.0, without.
 * It also takes what a client of AMQP 0-9-1 has received: headers are its application properties.
 */
public class Main {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static CountDownLatch left;

    public static void main(String[] args) throws Exception {
        int port = Integer.parseInt(args[1]);

        left = new CountDownLatch(Integer.parseInt(args[3]));
        AutoCloseable client = args[0].equals("1.0") ? receive10(port, args[2]) : receive091(port, args[2]);
        if (!left.await(60, TimeUnit.SECONDS)) {
            fail(new IllegalStateException(left.getCount() + " messages have not come"));
        }
        client.close();
    }

    private static AutoCloseable receive10(int port, String queue) {
        var vertx = Vertx.vertx();

        ProtonClient.create(vertx).connect("127.0.0.1", port, "guest", "guest", connected -> {
            if (connected.failed()) {
                fail(connected.cause());
            }
            connected.result().open().createReceiver("/amq/queue/" + queue)
                .handler((delivery, message) -> print(ProtonAmqpMessageFactory.createReader(message)))
                .open();
        });
        return () -> vertx.close().toCompletionStage().toCompletableFuture().get(10, TimeUnit.SECONDS);
    }

    private static AutoCloseable receive091(int port, String queue) throws Exception {
        var factory = new ConnectionFactory();

        factory.setPort(port);
        var connection = factory.newConnection();
        connection.createChannel().basicConsume(queue, true, (tag, delivery) -> print(reader(delivery)), tag -> { });
        return connection;
    }

    private static MessageReader reader(Delivery delivery) {
        var headers = new HashMap<String, Object>();

        delivery.getProperties().getHeaders().forEach((name, value) ->
            headers.put(name, value instanceof LongString ? value.toString() : value));
        return ProtonAmqpMessageFactory.createReader(delivery.getProperties().getContentType(),
            new ApplicationProperties(headers), new Data(new Binary(delivery.getBody())));
    }

    private static void print(MessageReader reader) {
        try {
            System.out.println(JSON.writeValueAsString(shown(reader.toEvent())));
            left.countDown();
        } catch (Exception e) {
            fail(e);
        }
    }

    private static void fail(Throwable reason) {
        reason.printStackTrace();
        System.exit(1);
    }

    private static Map<String, Object> shown(CloudEvent event) {
        var shown = new LinkedHashMap<String, Object>();
        var extensions = new TreeMap<String, Object>();

        event.getExtensionNames().forEach(name -> extensions.put(name, event.getExtension(name)));
        shown.put("id", event.getId());
        shown.put("source", event.getSource().toString());
        shown.put("type", event.getType());
        shown.put("subject", event.getSubject());
        shown.put("dataschema", event.getDataSchema() == null ? null : event.getDataSchema().toString());
        shown.put("datacontenttype", event.getDataContentType());
        shown.put("specversion", event.getSpecVersion().toString());
        shown.put("time", ChronoUnit.MICROS.between(Instant.EPOCH, event.getTime().toInstant()));
        shown.put("extensions", extensions);
        shown.put("data", Base64.getEncoder().encodeToString(event.getData().toBytes()));
        return shown;
    }
}
