import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.sql.Types;
import java.time.OffsetDateTime;
import java.util.Properties;
import java.util.UUID;
import org.postgresql.util.PGobject;

/**
 * Binds values of Java's own types by pgjdbc; the folder above says what it reads
 * and prints.
 */
public class Main {
    private static PGobject json(String type, String text) throws SQLException {
        PGobject object = new PGobject();
        object.setType(type);
        object.setValue(text);
        return object;
    }

    /** Whether there is such a kind. jsonType: of the PGobject, null: a string is set. */
    private static boolean bind(PreparedStatement statement, int at, String kind, String text, String jsonType)
            throws SQLException {
        switch (kind) {
            case "text":
                statement.setString(at, text);
                return true;
            case "int":
                statement.setInt(at, Integer.parseInt(text));
                return true;
            case "bigint":
                statement.setLong(at, Long.parseLong(text));
                return true;
            case "uuid":
                statement.setObject(at, UUID.fromString(text));
                return true;
            case "json":
            case "list":
                statement.setObject(at, json(jsonType, text));
                return true;
            case "time":
                statement.setObject(at, OffsetDateTime.parse(text));
                return true;
            case "null":
                statement.setNull(at, Types.VARCHAR);
                return true;
            default:
                return false;
        }
    }

    public static void main(String[] args) throws Exception {
        String driver = args[0];
        PrintStream out = new PrintStream(System.out, true, "UTF-8");
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        Properties properties = new Properties();
        properties.setProperty("user", System.getenv("PGUSER"));
        properties.setProperty("sslmode", "disable");
        if (driver.equals("pgjdbc unspecified"))
            properties.setProperty("stringtype", "unspecified");
        String jsonType = driver.equals("pgjdbc json") ? "json" : "jsonb";
        String url = "jdbc:postgresql://" + System.getenv("PGHOST") + ":" + System.getenv("PGPORT") + "/"
            + System.getenv("PGDATABASE");
        try (Connection connection = DriverManager.getConnection(url, properties)) {
            for (String line; (line = in.readLine()) != null; ) {
                String[] fields = line.split("\t", -1);
                String[] kinds = fields[1].split(",");
                // each parameter stands once, and in order
                try (PreparedStatement statement = connection.prepareStatement(fields[2].replaceAll("\\$\\d+", "?"))) {
                    boolean all = true;
                    for (int i = 0; i < kinds.length && all; i++)
                        all = bind(statement, i + 1, kinds[i], fields[3 + i], jsonType);
                    if (!all) {
                        out.println(fields[0] + "\tnone");
                        continue;
                    }
                    ResultSet result = statement.executeQuery();
                    result.next();
                    out.println(fields[0] + "\tok\t" + result.getString(1));
                } catch (SQLException e) {
                    boolean server = e instanceof org.postgresql.util.PSQLException
                        && ((org.postgresql.util.PSQLException) e).getServerErrorMessage() != null;
                    out.println(fields[0] + "\t" + (server ? e.getSQLState() : "client") + "\t"
                        + e.getMessage().replaceAll("\\s+", " "));
                }
            }
        }
    }
}
