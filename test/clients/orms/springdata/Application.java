package shop;

import com.zaxxer.hikari.HikariDataSource;
import jakarta.persistence.EntityManagerFactory;
import java.util.Map;
import javax.sql.DataSource;
import org.hibernate.boot.model.naming.Identifier;
import org.hibernate.boot.model.naming.PhysicalNamingStrategyStandardImpl;
import org.hibernate.engine.jdbc.env.spi.JdbcEnvironment;
import org.springframework.context.annotation.Bean;
import org.springframework.context.annotation.ComponentScan;
import org.springframework.context.annotation.Configuration;
import org.springframework.data.jpa.repository.config.EnableJpaRepositories;
import org.springframework.orm.jpa.JpaTransactionManager;
import org.springframework.orm.jpa.LocalContainerEntityManagerFactoryBean;
import org.springframework.orm.jpa.vendor.HibernateJpaVendorAdapter;
import org.springframework.transaction.PlatformTransactionManager;
import org.springframework.transaction.annotation.EnableTransactionManagement;

/** What Spring Boot makes of application.properties. */
@Configuration
@ComponentScan("shop")
@EnableJpaRepositories("shop")
@EnableTransactionManagement
public class Application {
    private static final Map<String, String> ENV = System.getenv();

    public static String url() {
        return "jdbc:postgresql://" + ENV.get("PGHOST") + ":" + ENV.get("PGPORT") + "/" + ENV.get("PGDATABASE")
            + "?sslmode=disable&reWriteBatchedInserts=true";
    }

    @Bean(destroyMethod = "close")
    HikariDataSource dataSource() {
        HikariDataSource pool = new HikariDataSource();
        pool.setJdbcUrl(url());
        pool.setUsername(ENV.get("PGUSER"));
        pool.setMaximumPoolSize(4);
        return pool;
    }

    @Bean
    LocalContainerEntityManagerFactoryBean entityManagerFactory(DataSource dataSource) {
        LocalContainerEntityManagerFactoryBean factory = new LocalContainerEntityManagerFactoryBean();
        factory.setDataSource(dataSource);
        factory.setPackagesToScan("shop");
        factory.setJpaVendorAdapter(new HibernateJpaVendorAdapter());
        factory.setJpaPropertyMap(Map.of(
            "hibernate.hbm2ddl.auto", "validate",
            "hibernate.jdbc.batch_size", "50",
            "hibernate.physical_naming_strategy", new SchemaOfOutbox()));
        return factory;
    }

    @Bean
    PlatformTransactionManager transactionManager(EntityManagerFactory factory) {
        return new JpaTransactionManager(factory);
    }

    /** The tests have the extension in several schemas. */
    private static class SchemaOfOutbox extends PhysicalNamingStrategyStandardImpl {
        @Override
        public Identifier toPhysicalSchemaName(Identifier name, JdbcEnvironment environment) {
            return name == null ? null : Identifier.toIdentifier(ENV.get("OUTBOX_SCHEMA"));
        }
    }
}
