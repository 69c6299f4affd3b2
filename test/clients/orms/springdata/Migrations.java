import java.io.ByteArrayOutputStream;
import java.nio.charset.StandardCharsets;
import java.sql.Connection;
import java.sql.DriverManager;
import java.util.Map;
import java.util.regex.Pattern;
import liquibase.command.CommandScope;
import liquibase.database.Database;
import liquibase.database.DatabaseFactory;
import liquibase.database.jvm.JdbcConnection;
import shop.Application;

/** What Liquibase does with a schema. */
class Migrations {
    static void run(String operation, Map<String, Object> said) throws Exception {
        try (Connection connection = DriverManager.getConnection(Application.url(), System.getenv("PGUSER"), null)) {
            Database database = DatabaseFactory.getInstance().findCorrectDatabaseImplementation(new JdbcConnection(connection));
            switch (operation) {
                case "migrate_up":
                case "extension":
                    new CommandScope("update")
                        .addArgumentValue("database", database)
                        .addArgumentValue("changelogFile", "db/" + operation.replaceAll("_.*", "") + ".sql")
                        .execute();
                    break;
                case "migrate_down":
                    new CommandScope("rollbackCount")
                        .addArgumentValue("database", database)
                        .addArgumentValue("changelogFile", "db/migrate.sql")
                        .addArgumentValue("count", 1)
                        .execute();
                    break;
                case "dump":
                    said.put("says", dump(database));
                    break;
                default:
                    said.put("none", "neither Spring Data nor Liquibase has it");
            }
        }
    }

    /** How many objects of ours generate-changelog would make again. */
    static long dumped(Database database, String exclude, String... schemas) throws Exception {
        ByteArrayOutputStream out = new ByteArrayOutputStream();
        CommandScope command = new CommandScope("generateChangelog").addArgumentValue("database", database).setOutput(out);
        if (schemas.length > 0) {
            command.addArgumentValue("schemas", String.join(",", schemas));
        }
        if (exclude != null) {
            command.addArgumentValue("excludeObjects", exclude);
        }
        command.execute();
        return Pattern.compile("(?:tableName|viewName|sequenceName)=\"(outbox\\w*)\"").matcher(out.toString(StandardCharsets.UTF_8))
            .results().map(found -> found.group(1)).distinct().count();
    }

    static String dump(Database database) throws Exception {
        Main.expect("of the default schema", "0", String.valueOf(dumped(database, null)));
        long all = dumped(database, null, "outbox");
        Main.expect("of outbox", "true", String.valueOf(all > 20));
        String exclude = "outbox.*";
        Main.expect("of outbox without its objects", "0", String.valueOf(dumped(database, exclude, "outbox")));
        return "nothing of ours";
    }
}
