/*-------------------------------------------------------------------------
 *
 * reason_advice.c
 *		What to do about each reason.
 *
 * One table for all that show a reason.  Critical is what stops messages and does
 * not end by itself; a warning is what the relay gets over alone, so that only one
 * that lasts needs an operator.  Words in capital letters are replaced: by
 * advice_command.c where the settings know them, else by the reader.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "admin_internal.h"

PG_FUNCTION_INFO_V1(outbox_reason_hint);

#define CRITICAL	"critical"
#define WARNS		"warning"

#define SHOW_URI	"SHOW outbox.broker_uri"
#define DIAGNOSE	"rabbitmq-diagnostics alarms"
#define SEE_CERT	"timeout 5 openssl s_client -connect HOST:PORT -servername HOST </dev/null | openssl x509 -noout -subject -issuer -dates -ext subjectAltName"
#define LIST_USERS	"rabbitmqctl list_permissions -p VHOST"
#define LOCKERS		"SELECT * FROM SCHEMA.outbox_table_lockers()"
#define BROKER_LOG	"rabbitmq-diagnostics log_tail -N 50"
#define LIST_EXCHANGES "rabbitmqctl list_exchanges -p VHOST name type durable"

static const OutboxAdvice advices[] = {
	/* no way to the broker */
	{OUTBOX_REASON_HOST_UNKNOWN, CRITICAL,
		"The name of RabbitMQ's host in outbox.broker_uri is not known to this server's resolver: correct the name, or the DNS of this server (/etc/resolv.conf, /etc/hosts).",
	"getent ahosts HOST"},
	{OUTBOX_REASON_REFUSED, CRITICAL,
		"The host is there, and no process listens at the port: start RabbitMQ, or correct host and port of outbox.broker_uri. Messages wait, and the relay tries again every second.",
	"rabbitmq-diagnostics check_port_connectivity"},
	{OUTBOX_REASON_UNREACHABLE, CRITICAL,
		"There is no route from this server to RabbitMQ's host: look at the network, its routes and the address in outbox.broker_uri.",
	"ip route get $(getent ahosts HOST | awk '{ print $1; exit }')"},
	{OUTBOX_REASON_TCP_TIMEOUT, CRITICAL,
		"RabbitMQ's host does not answer: it is down, or a firewall between it and this server drops packets to the port of outbox.broker_uri. The command says CONNECTED where there is a way.",
	"timeout 3 openssl s_client -connect HOST:PORT </dev/null"},
	{OUTBOX_REASON_NO_RESOURCES, CRITICAL,
		"This server has no file descriptor, memory or local port left for the connection to RabbitMQ: see reason_text, then max_files_per_process and the limits of the operating system.",
	"SHOW max_files_per_process"},
	/* TLS */
	{OUTBOX_REASON_TLS_TIMEOUT, CRITICAL,
		"RabbitMQ's port takes the connection and does not answer to TLS: the broker is overloaded or stopped, or something else listens there.",
	SEE_CERT},
	{OUTBOX_REASON_TLS_FILES, CRITICAL,
		"A file of outbox.tls_ca_file, outbox.tls_cert_file or outbox.tls_key_file cannot be used: it must be there, readable by the server's user, in PEM, the key the one of the certificate. See reason_text.",
	"SELECT name, setting FROM pg_settings WHERE name LIKE 'outbox%tls%'"},
	{OUTBOX_REASON_TLS_KEY_MODE, CRITICAL,
		"Others may read the private key, or the file with its passphrase, see reason_text: take their rights away, and let it belong to the server's user or root.",
	"chmod 600 KEY_FILE PASSPHRASE_FILE"},
	{OUTBOX_REASON_TLS_PASSPHRASE, CRITICAL,
		"The private key of the client certificate is encrypted: put its passphrase into a file of mode 0600, name that in outbox.tls_key_passfile and reload; or take the passphrase off the key.",
	"(cat /dev/null PASSPHRASE_FILE; echo) | openssl pkey -noout -in KEY_FILE -passin stdin"},
	{OUTBOX_REASON_TLS_UNTRUSTED, CRITICAL,
		"The broker's certificate is not signed by a trusted CA: put the CA that signed it into the file of outbox.tls_ca_file and reload; if RabbitMQ leaves intermediate certificates out, it must send them.",
	SEE_CERT},
	{OUTBOX_REASON_TLS_HOST, CRITICAL,
		"The broker's certificate is for another host name than the one in outbox.broker_uri: use a name that is in it, or issue one with this name (subjectAltName).",
	SEE_CERT},
	{OUTBOX_REASON_TLS_EXPIRED, CRITICAL,
		"The broker's certificate, or that of a CA above it, has expired: renew it on the broker (rabbitmqctl eval 'ssl:clear_pem_cache().' makes it read the new one). If its dates are right, this server's clock is wrong.",
	SEE_CERT},
	{OUTBOX_REASON_TLS_NOT_YET, CRITICAL,
		"The broker's certificate is not valid yet: this server's clock is behind, or that of the CA was ahead.",
	SEE_CERT},
	{OUTBOX_REASON_TLS_CLIENT_WANTED, CRITICAL,
		"RabbitMQ requires a client certificate (ssl_options.fail_if_no_peer_cert): set outbox.tls_cert_file and outbox.tls_key_file to one that is signed by a CA of the broker's ssl_options.cacertfile.",
	"SELECT name, setting FROM pg_settings WHERE name LIKE 'outbox%tls%'"},
	{OUTBOX_REASON_TLS_CLIENT, CRITICAL,
		"RabbitMQ does not accept the relay's certificate: set outbox.tls_cert_file and outbox.tls_key_file to one that is valid and signed by a CA of the broker's ssl_options.cacertfile.",
	"openssl x509 -noout -subject -issuer -dates -in CERT_FILE"},
	{OUTBOX_REASON_TLS_VERSION, CRITICAL,
		"RabbitMQ, or a proxy in front of it, speaks neither TLS 1.2 nor 1.3, and nothing older is used: correct its ssl_options.versions, or renew it.",
	SEE_CERT},
	{OUTBOX_REASON_TLS_NONE, CRITICAL,
		"What listens at the port of outbox.broker_uri does not speak TLS: take RabbitMQ's port for it (5671, not 5672), or set up its listeners.ssl.",
	"rabbitmq-diagnostics listeners"},
	{OUTBOX_REASON_TLS_HANDSHAKE, CRITICAL,
		"The TLS handshake failed; see reason_text and the broker's log. Common causes: no shared cipher, the broker's certificate and key do not match, or the port is not a TLS port (5671).",
	SEE_CERT},
	/* a host is there, and refuses the connection */
	{OUTBOX_REASON_NOT_RABBITMQ, CRITICAL,
		"What listens at the address of outbox.broker_uri does not speak AMQP 0-9-1 as RabbitMQ does: correct host and port (5672, or 5671 with amqps; 15672 is the management).",
	SHOW_URI},
	{OUTBOX_REASON_LOGIN_TIMEOUT, CRITICAL,
		"RabbitMQ's port takes the connection and then does not answer: the broker hangs or is overloaded, or a proxy is in front of one that is down.",
	"rabbitmq-diagnostics check_running"},
	{OUTBOX_REASON_LOGIN_CLOSED, CRITICAL,
		"The connection is closed during the login without a word: the port is one for TLS (then write amqps://), RabbitMQ is starting or has no connection left, or a proxy has no broker behind it. RabbitMQ's log says more.",
	"rabbitmq-diagnostics listeners"},
	{OUTBOX_REASON_MECHANISM_MISSING, CRITICAL,
		"RabbitMQ does not offer the mechanism of outbox.auth_mechanism. For external it needs the plugin rabbitmq_auth_mechanism_ssl, EXTERNAL in its auth_mechanisms, and ssl_options.verify = verify_peer, so that it looks at the relay's certificate.",
	"rabbitmq-plugins enable rabbitmq_auth_mechanism_ssl"},
	{OUTBOX_REASON_LOGIN_REFUSED, CRITICAL,
		"RabbitMQ does not accept user and password: check the user in outbox.broker_uri and its line in the file of outbox.passfile, which is read at each connect. The user guest may log in from the broker's own host only. With outbox.auth_mechanism = external the user is the name in the certificate (ssl_cert_login_from).",
	"rabbitmqctl authenticate_user USER"},
	{OUTBOX_REASON_VHOST_MISSING, CRITICAL,
		"RabbitMQ has no virtual host of the name in outbox.broker_uri: correct it, or add it.",
	"rabbitmqctl add_vhost VHOST"},
	{OUTBOX_REASON_VHOST_FORBIDDEN, CRITICAL,
		"The user may not use the virtual host of outbox.broker_uri: give it permissions there.",
	"rabbitmqctl set_permissions -p VHOST USER '^outbox(-identity\\..*)?$' '.*' ''"},
	{OUTBOX_REASON_VHOST_DOWN, CRITICAL,
		"RabbitMQ could not start the virtual host, mostly because its data is damaged: see the broker's log.",
	"rabbitmqctl restart_vhost -p VHOST"},
	{OUTBOX_REASON_CONNECTION_LIMIT, CRITICAL,
		"RabbitMQ allows the user, the virtual host or the node no further connection or channel: raise the limit, or end connections that are not needed. Each worker needs one connection with up to three channels.",
	"rabbitmqctl list_connections user vhost client_properties"},
	/* it was connected */
	{OUTBOX_REASON_HEARTBEATS, WARNS,
		"RabbitMQ sends no heartbeats: the broker hangs, or the network between lets nothing through. The relay connects again.",
	"rabbitmq-diagnostics check_running"},
	{OUTBOX_REASON_CLOSED, WARNS,
		"RabbitMQ has closed the connection, for the reason that it gives: it is stopped, or an administrator or a policy did it. The relay connects again.",
	"rabbitmq-diagnostics status"},
	{OUTBOX_REASON_RESET, WARNS,
		"The connection to RabbitMQ has broken: the broker died, or a firewall or proxy has cut it. The relay connects again.",
	"rabbitmq-diagnostics check_running"},
	{OUTBOX_REASON_STALLED, WARNS,
		"RabbitMQ takes no data, for longer than two heartbeats: the network between stands still, or the broker has an alarm or a disk that is too slow. The relay connects again and sends what is not confirmed.",
	DIAGNOSE},
	{OUTBOX_REASON_NO_CONFIRM, WARNS,
		"RabbitMQ has a message and does not confirm it within outbox.confirm_timeout: a queue without a majority of its members, a disk that is too slow, or a broker that hangs. The relay connects again and sends what is not confirmed.",
	"rabbitmq-diagnostics check_if_node_is_quorum_critical"},
	{OUTBOX_REASON_PROTOCOL, WARNS,
		"RabbitMQ, or something between, said what the protocol does not allow: see reason_text and the broker's log. The relay connects again.",
	BROKER_LOG},
	{OUTBOX_REASON_BROKER_OTHER, WARNS,
		"The connection to RabbitMQ failed for the reason in reason_text; the relay connects again.",
	BROKER_LOG},
	/* it blocks us */
	{OUTBOX_REASON_ALARM_MEMORY, CRITICAL,
		"RabbitMQ has a memory alarm and accepts no messages: consumers must catch up, or it needs more memory (vm_memory_high_watermark). Publishing resumes when the alarm is over.",
	DIAGNOSE},
	{OUTBOX_REASON_ALARM_DISK, CRITICAL,
		"RabbitMQ has a disk alarm and accepts no messages: free space on the broker's disk, more than disk_free_limit. Publishing resumes when the alarm is over.",
	DIAGNOSE},
	{OUTBOX_REASON_ALARM_OTHER, CRITICAL,
		"RabbitMQ has an alarm and accepts no messages; look at the broker. Publishing resumes when the alarm is over.",
	DIAGNOSE},
	/* another relay is there */
	{OUTBOX_REASON_TWIN, CRITICAL,
		"Another server publishes the messages of this database too: a copy of its data directory, or an old primary after a promotion. Find its address among the broker's connections (their product is outbox) and stop the wrong one, or set its outbox.enabled to off; then give each environment a name by outbox.environment.",
	"rabbitmqctl list_connections pid peer_host peer_port user client_properties"},
	/* settings */
	{OUTBOX_REASON_URI, CRITICAL,
		"outbox.broker_uri cannot be used, see reason_text: correct it where it is set, and reload the configuration. Its form is amqps://user@host:port/vhost.",
	SHOW_URI},
	{OUTBOX_REASON_PLAINTEXT, CRITICAL,
		"outbox.broker_uri begins with amqp:// and leads to another host, where password and messages would go in plain text; nothing was sent. Write amqps:// (port 5671) where it is set, or, on a network that you trust, set outbox.allow_plaintext to on; then reload the configuration.",
	SHOW_URI},
	{OUTBOX_REASON_MECHANISM, CRITICAL,
		"outbox.auth_mechanism = external needs amqps:// in outbox.broker_uri, and a client certificate in outbox.tls_cert_file and outbox.tls_key_file: set them, or outbox.auth_mechanism to plain, and reload the configuration.",
	"SHOW outbox.auth_mechanism"},
	{OUTBOX_REASON_PASSFILE_MISSING, CRITICAL,
		"The file named by outbox.passfile does not exist: create it, or correct the setting and reload the configuration.",
	"SHOW outbox.passfile"},
	{OUTBOX_REASON_PASSFILE_MODE, CRITICAL,
		"Others may read or change the file named by outbox.passfile: take their rights away, and let it belong to the server's user or root.",
	"chmod 600 PASSFILE"},
	{OUTBOX_REASON_PASSFILE_UNREADABLE, CRITICAL,
		"The server's user cannot read the file named by outbox.passfile: it must be a plain file of text, of at most 64 kB, that belongs to this user.",
	"ls -l PASSFILE"},
	{OUTBOX_REASON_PASSFILE_NO_LINE, CRITICAL,
		"There is no password for the user of outbox.broker_uri: add a line host:port:virtual host:user:password to the file named by outbox.passfile, which must be set for any user but guest. Each host of the URI needs one that matches.",
	"SHOW outbox.passfile"},
	{OUTBOX_REASON_ENVIRONMENT, CRITICAL,
		"outbox.environment is set inside of the data directory, where each copy of it has the same: set it on the server's command line, in its environment (OUTBOX_ENVIRONMENT), or in a file outside of the data directory.",
	"SELECT sourcefile, sourceline FROM pg_settings WHERE name = 'outbox.environment'"},
	/* the database */
	{OUTBOX_REASON_DB_LOCK, WARNS,
		"Another session locks a table of outbox, or its rows, for longer than the relay waits: end that transaction, or let it end. The relay tries again.",
	LOCKERS},
	{OUTBOX_REASON_DB_TIMEOUT, WARNS,
		"A statement of the relay took more than a minute, or was cancelled: look at the server's disks, at locks and at vacuum of the table outbox. The relay tries again.",
	LOCKERS},
	{OUTBOX_REASON_DB_DISK, CRITICAL,
		"A disk of this server is full, so that what was published cannot be settled: free space. The relay tries again.",
	"df -h"},
	{OUTBOX_REASON_DB_MEMORY, CRITICAL,
		"This server has no memory left for the relay: look at what else uses it. The relay tries again.",
	"free -m"},
	{OUTBOX_REASON_DB_PERMISSION, CRITICAL,
		"The owner of the tables of outbox may not do what the relay does: a policy, or a right that was revoked, stands in the way, see reason_text.",
	"SELECT * FROM pg_policies WHERE tablename::text LIKE 'outbox%'"},
	{OUTBOX_REASON_DB_TRIGGER, CRITICAL,
		"A trigger, a constraint or an index that was added to a table of outbox refuses what the relay does, see reason_text and the server log: correct it, or take it away.",
	"SELECT tgrelid::regclass, tgname FROM pg_trigger WHERE NOT tgisinternal AND tgrelid::regclass::text LIKE '%outbox%'"},
	{OUTBOX_REASON_DB_CORRUPT, CRITICAL,
		"Data of this server cannot be read or written: see reason_text and the server log, and look at the disk before anything else. REINDEX helps where only an index is damaged.",
	"dmesg --level=err,warn | tail -n 50"},
	{OUTBOX_REASON_DB_UNREADABLE, CRITICAL,
		"A value of the message has bytes outside of the database's encoding, or a part of it is lost. Give the message its value again by UPDATE, or discard it. Later messages of its key follow on_failed; a worker with more than 64 such messages publishes nothing.",
	"SELECT subject, detail, command FROM SCHEMA.outbox_problems WHERE problem = 'message unreadable'"},
	{OUTBOX_REASON_DB_OTHER, CRITICAL,
		"The database refuses what the relay does, see reason_text, sqlstate and the server log; the relay tries again.",
	"SELECT worker, sqlstate, reason_text FROM SCHEMA.outbox_workers"},
	/* one route */
	{OUTBOX_REASON_EXCHANGE_MISSING, CRITICAL,
		"The route's exchange does not exist in RabbitMQ: create it, or set the route's exchange_type, so that the relay declares it. The route's messages wait.",
	LIST_EXCHANGES},
	{OUTBOX_REASON_EXCHANGE_FORBIDDEN, CRITICAL,
		"The user may not write to the route's exchange, or not declare it: give it the permission in RabbitMQ. The route's messages wait.",
	LIST_USERS},
	{OUTBOX_REASON_EXCHANGE_DIFFERS, CRITICAL,
		"The route's exchange exists and is of another type, or not durable: set the route's exchange_type to that type, or to NULL. The route's messages wait.",
	LIST_EXCHANGES},
	{OUTBOX_REASON_EXCHANGE_TYPE, CRITICAL,
		"RabbitMQ does not know the route's exchange_type: correct it, or enable the plugin that brings it. The route's messages wait.",
	"rabbitmq-plugins list --enabled"},
	{OUTBOX_REASON_EXCHANGE_OTHER, CRITICAL,
		"RabbitMQ does not take messages for the route's exchange, see its words. The route's messages wait.",
	LIST_EXCHANGES},
	{OUTBOX_REASON_ROUTE_NOT_OURS, CRITICAL,
		"Messages of a route that another relay publishes were written while the triggers of the table outbox were disabled, and no relay takes them: enable the triggers, and mark the messages. Change data capture cannot see them any more: enqueue these again, and delete them.",
	"UPDATE SCHEMA.outbox SET outlet = 'external' WHERE outlet IS NULL AND route = ROUTE"},
	/* an attempt of one message */
	{OUTBOX_REASON_UNROUTABLE, WARNS,
		"No queue takes this routing key: bind one. The relay tries again until max_attempts of the route.",
	"rabbitmqctl list_bindings -p VHOST"},
	{OUTBOX_REASON_QUEUE_REFUSES, WARNS,
		"A queue is full (reject-publish) or has failed: look at it. The relay tries again until max_attempts of the route.",
	"rabbitmqctl list_queues -p VHOST name messages policy state"},
	{OUTBOX_REASON_MESSAGE_REFUSED, WARNS,
		"The broker rejected these messages. If it says \"access to topic\", the user needs a pattern for their routing keys: rabbitmqctl set_topic_permissions gives it, and replaces the patterns that the user has for that exchange. Otherwise fix each message with outbox_edit() or discard it. The relay tries again until max_attempts of the route.",
	"rabbitmqctl list_topic_permissions -p VHOST"},
	{OUTBOX_REASON_EXTERNAL_NACK, WARNS,
		"The external relay of their route could not publish them. The relay tries again until max_attempts of the route.",
	"SELECT id, route, last_error FROM SCHEMA.outbox_messages WHERE last_error_reason = 'external nack' LIMIT 20"},
};

StaticAssertDecl(lengthof(advices) == OUTBOX_REASON_COUNT - 1,
				 "each reason has its advice");

const OutboxAdvice *
outbox_reason_advice(OutboxReason reason)
{
	for (int i = 0; i < (int) lengthof(advices); i++)
		if (advices[i].reason == reason)
			return &advices[i];
	elog(ERROR, "no advice for reason %d", (int) reason);
}

static const char *
text_argument(FunctionCallInfo fcinfo, int n)
{
	return PG_ARGISNULL(n) ? NULL : text_to_cstring(PG_GETARG_TEXT_PP(n));
}

/* fill: the command is to be pasted, on this server and by who may see its settings. */
Datum
outbox_reason_hint(PG_FUNCTION_ARGS)
{
	char	   *name;
	OutboxReason reason;
	const OutboxAdvice *advice;
	ResultRow	row = {0};

	if (PG_ARGISNULL(0))
		PG_RETURN_NULL();
	name = text_to_cstring(PG_GETARG_TEXT_PP(0));
	reason = outbox_reason_by_name(name);
	if (reason == OUTBOX_REASON_NONE)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("unknown reason \"%s\"", name),
				 errhint("Known reasons are listed in doc/operations.md.")));
	advice = outbox_reason_advice(reason);
	put_text(&row, advice->severity);
	put_text(&row, advice->hint);
	put_text(&row, outbox_fill_command(advice->command, PG_GETARG_BOOL(1),
									   text_argument(fcinfo, 2),
									   text_argument(fcinfo, 3)));
	return return_row(fcinfo, &row);
}
