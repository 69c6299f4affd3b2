import com.rabbitmq.client.LongString;
import java.math.BigDecimal;
import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;
import java.security.NoSuchAlgorithmException;
import java.util.ArrayList;
import java.util.Date;
import java.util.HexFormat;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/**
 * What an object is, for test/clients/consumers.pl: its kind (s text, b bytes, o truth value,
 * i integer, d double, T time, n nothing, a list, m map), its type, itself.
 */
final class Typed {
	/** Bytes of a text above which only a digest is said. */
	private static final int LONG = 1000;

	private Typed() {}

	static String digest(byte[] octets) {
		try {
			return HexFormat.of().formatHex(MessageDigest.getInstance("SHA-256").digest(octets));
		} catch (NoSuchAlgorithmException e) {
			throw new IllegalStateException(e);
		}
	}

	private static String text(byte[] octets) {
		return octets.length > LONG ? digest(octets) : new String(octets, StandardCharsets.UTF_8);
	}

	private static Map<String, Object> said(String kind, Object object, Object value) {
		Map<String, Object> said = new LinkedHashMap<>();
		said.put("t", kind);
		said.put("as", name(object));
		said.put("v", value);
		return said;
	}

	/** By the interface, as whose implementation a consumer does not see it. */
	private static String name(Object object) {
		return object == null ? "null"
			: object instanceof LongString ? "LongString"
			: object instanceof Map ? "Map"
			: object instanceof List ? "List"
			: object.getClass().getSimpleName();
	}

	static Map<String, Object> typed(Object o) {
		if (o == null) return said("n", o, null);
		if (o instanceof Boolean) return said("o", o, o);
		if (o instanceof Integer || o instanceof Long || o instanceof Short || o instanceof Byte) return said("i", o, o.toString());
		if (o instanceof Double d) return said("d", o, String.format("%016x", Double.doubleToRawLongBits(d)));
		if (o instanceof BigDecimal) return said("D", o, o.toString());
		if (o instanceof Date date) return said("T", o, Long.toString(Math.floorDiv(date.getTime(), 1000L)));
		if (o instanceof String s) return said("s", o, text(s.getBytes(StandardCharsets.UTF_8)));
		if (o instanceof LongString s) return said("L", o, text(s.getBytes()));
		if (o instanceof byte[] octets) return said("b", o, HexFormat.of().formatHex(octets));
		if (o instanceof List<?> list) {
			List<Object> all = new ArrayList<>();
			for (Object element : list) all.add(typed(element));
			return said("a", o, all);
		}
		if (o instanceof Map<?, ?> map) {
			Map<String, Object> all = new LinkedHashMap<>();
			map.forEach((name, value) -> all.put((String) name, typed(value)));
			return said("m", o, all);
		}
		throw new IllegalArgumentException(o.getClass().getName());
	}

	static Map<String, Object> body(byte[] octets) {
		return Map.of("as", "byte[]", "size", octets.length, "sha256", digest(octets));
	}
}
