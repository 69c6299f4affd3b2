import com.fasterxml.jackson.databind.ObjectMapper;
import com.rabbitmq.client.AMQP;
import com.rabbitmq.client.Channel;
import com.rabbitmq.client.Connection;
import com.rabbitmq.client.ConnectionFactory;
import com.rabbitmq.client.Delivery;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;

/**
 * What the Java client hands out of each message of some queues, for test/clients/consumers.pl.
 *
 * usage: Main setup NAME           declares the queues that need arguments
 *        Main read QUEUE=N...      prints N deliveries of each, one JSON object a line
 *        Main once QUEUE           consumes, each message once (Once.java)
 *
 * The broker is in AMQP_URI.
 */
public final class Main {
	private static final ObjectMapper JSON = new ObjectMapper();

	private Main() {}

	private static void setup(Channel channel, String name) throws Exception {
		channel.queueDeclare(name + ".priority", true, false, false, Map.of("x-max-priority", 10));
		channel.queueDeclare(name + ".quorum", true, false, false, Map.of(
			"x-queue-type", "quorum",
			"x-single-active-consumer", true,
			"x-delivery-limit", 20,
			"x-dead-letter-exchange", "",
			"x-dead-letter-routing-key", name + ".dead"));
		channel.queueDeclare(name + ".dead", true, false, false, null);
		channel.queueDeclare(name + ".headers", true, false, false, null);
		channel.queueBind(name + ".headers", "headed", "",
			Map.of("x-match", "all", "region", "eu", "tier", 7, "vip", true));
	}

	private static Map<String, Object> properties(AMQP.BasicProperties p) {
		Map<String, Object> all = new LinkedHashMap<>();
		all.put("content_type", p.getContentType());
		all.put("content_encoding", p.getContentEncoding());
		all.put("delivery_mode", p.getDeliveryMode());
		all.put("priority", p.getPriority());
		all.put("correlation_id", p.getCorrelationId());
		all.put("reply_to", p.getReplyTo());
		all.put("expiration", p.getExpiration());
		all.put("message_id", p.getMessageId());
		all.put("timestamp", p.getTimestamp());
		all.put("type", p.getType());
		all.put("user_id", p.getUserId());
		all.put("app_id", p.getAppId());
		all.values().removeIf(value -> value == null);
		all.replaceAll((name, value) -> Typed.typed(value));
		return all;
	}

	private static void show(String queue, Delivery delivery) throws Exception {
		Map<String, Object> said = new LinkedHashMap<>();
		said.put("queue", queue);
		said.put("redelivered", delivery.getEnvelope().isRedeliver());
		said.put("exchange", delivery.getEnvelope().getExchange());
		said.put("routing_key", delivery.getEnvelope().getRoutingKey());
		said.put("properties", properties(delivery.getProperties()));
		said.put("headers", Typed.typed(delivery.getProperties().getHeaders()));
		said.put("body", Typed.body(delivery.getBody()));
		System.out.println(JSON.writeValueAsString(said));
	}

	private static void read(Channel channel, String queue, int wanted) throws Exception {
		BlockingQueue<Delivery> deliveries = new LinkedBlockingQueue<>();
		channel.basicQos(100);
		String tag = channel.basicConsume(queue, false, (t, delivery) -> deliveries.add(delivery), t -> { });
		for (int i = 0; i < wanted; i++) {
			Delivery delivery = deliveries.take();
			show(queue, delivery);
			if (queue.endsWith(".quorum") && !delivery.getEnvelope().isRedeliver()) {
				channel.basicNack(delivery.getEnvelope().getDeliveryTag(), false, true);
			} else {
				channel.basicAck(delivery.getEnvelope().getDeliveryTag(), false);
			}
		}
		channel.basicCancel(tag);
	}

	public static void main(String[] words) throws Exception {
		if (words[0].equals("once")) {
			Once.run(System.getenv("AMQP_URI"), words[1]);
			return;
		}
		ConnectionFactory factory = new ConnectionFactory();
		factory.setUri(System.getenv("AMQP_URI"));
		try (Connection connection = factory.newConnection()) {
			Channel channel = connection.createChannel();
			if (words[0].equals("setup")) setup(channel, words[1]);
			for (int i = 1; words[0].equals("read") && i < words.length; i++) {
				String[] parts = words[i].split("=");
				read(channel, parts[0], Integer.parseInt(parts[1]));
			}
		}
	}
}
