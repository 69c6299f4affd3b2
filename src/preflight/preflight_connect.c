/*-------------------------------------------------------------------------
 *
 * preflight_connect.c
 *		Can each host of outbox.broker_uri be reached, and let us in?
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <netdb.h>
#include <sys/socket.h>
#include <time.h>

#include "miscadmin.h"
#include "pgtime.h"
#include "preflight_internal.h"
#include "settings.h"
#include "storage/latch.h"
#include "watchdog.h"

#define SECONDS_A_DAY	86400
#define EXPIRES_SOON_DAYS 30

/* A name may be asked for in vain for so long; nobody can end that. */
#define RESOLVE_MS		1000

/* A connect passes them in this order. */
typedef enum Step
{
	STEP_NAME,
	STEP_TCP,
	STEP_TLS,
	STEP_LOGIN,
	STEP_VHOST,
	STEP_OPEN
} Step;

static const char *const StepNames[] = {
	"name", "TCP", "TLS", "login", "virtual host"
};

/* At which step was that met? */
static Step
step_of(OutboxReason reason)
{
	switch (reason)
	{
		case OUTBOX_REASON_HOST_UNKNOWN:
			return STEP_NAME;
		case OUTBOX_REASON_REFUSED:
		case OUTBOX_REASON_UNREACHABLE:
		case OUTBOX_REASON_TCP_TIMEOUT:
		case OUTBOX_REASON_NO_RESOURCES:
		case OUTBOX_REASON_PLAINTEXT:
			return STEP_TCP;
		case OUTBOX_REASON_TLS_TIMEOUT:
		case OUTBOX_REASON_TLS_FILES:
		case OUTBOX_REASON_TLS_KEY_MODE:
		case OUTBOX_REASON_TLS_PASSPHRASE:
		case OUTBOX_REASON_TLS_UNTRUSTED:
		case OUTBOX_REASON_TLS_HOST:
		case OUTBOX_REASON_TLS_EXPIRED:
		case OUTBOX_REASON_TLS_NOT_YET:
		case OUTBOX_REASON_TLS_CLIENT_WANTED:
		case OUTBOX_REASON_TLS_CLIENT:
		case OUTBOX_REASON_TLS_VERSION:
		case OUTBOX_REASON_TLS_NONE:
		case OUTBOX_REASON_TLS_HANDSHAKE:
			return STEP_TLS;
		case OUTBOX_REASON_VHOST_MISSING:
		case OUTBOX_REASON_VHOST_FORBIDDEN:
		case OUTBOX_REASON_VHOST_DOWN:
		case OUTBOX_REASON_CONNECTION_LIMIT:
			return STEP_VHOST;
		default:
			return STEP_LOGIN;
	}
}

/* How a connect went. */
typedef struct Outcome
{
	Step		step;			/* STEP_OPEN, or where it failed */
	const char *detail;			/* of that */
	OutboxReason reason;
	bool		tried;			/* false: there was no time for it */
	int64		certificate_ends;
	char		address[NI_MAXHOST];	/* "": not known */
	int			ms;				/* it took */
} Outcome;

static void
note_address(OutboxLink *link, Outcome *outcome)
{
	struct sockaddr_storage peer;
	socklen_t	len = sizeof(peer);

	if (outbox_link_socket(link) == PGINVALID_SOCKET ||
		getpeername(outbox_link_socket(link), (struct sockaddr *) &peer, &len) != 0 ||
		getnameinfo((struct sockaddr *) &peer, len, outcome->address,
					sizeof(outcome->address), NULL, 0, NI_NUMERICHOST) != 0)
		outcome->address[0] = '\0';
}

/* Until it is open, has failed, or its time is over. */
static OutboxLinkStatus
finish_connect(OutboxLink *link, OutboxMonoTime until)
{
	OutboxLinkStatus status = OUTBOX_LINK_AGAIN;

	while (status == OUTBOX_LINK_AGAIN)
	{
		int64		left_ms = outbox_mono_ms_until(until, outbox_mono_now());
		int			due_ms = outbox_link_connect_due_ms(link);

		if (left_ms == 0)
			break;
		/* 0: the handshake goes on, for which nothing need be awaited */
		if (due_ms > 0)
			(void) outbox_preflight_wait(link, WL_SOCKET_WRITEABLE,
										 (int) Min(due_ms, left_ms));
		CHECK_FOR_INTERRUPTS();
		status = outbox_link_connect_poll(link);
	}
	CHECK_FOR_INTERRUPTS();
	return status;
}

static void
connect_host(OutboxPreflight *preflight, int n, int limit_ms, Outcome *outcome)
{
	OutboxLinkEvents events = {
		outbox_preflight_confirmed, outbox_preflight_returned,
		outbox_preflight_declared, preflight
	};

	/* no heartbeats: it lasts for seconds, and nobody sends ours meanwhile */
	OutboxLinkTarget target = {
		.host = preflight->uri.hosts[n].host,
		.port = preflight->uri.hosts[n].port,
		.tls = preflight->uri.tls,
		.vhost = preflight->uri.vhost,
		.user = preflight->uri.user,
		.password = preflight->passwords[n],
		.application_name = psprintf("outbox preflight of database %u",
									 MyDatabaseId)
	};
	OutboxMonoTime began = outbox_mono_now();
	OutboxLinkStatus status;
	OutboxLink *link;

	memset(outcome, 0, sizeof(*outcome));
	outcome->tried = limit_ms >= RESOLVE_MS;
	if (!outcome->tried)
		return;
	link = preflight->links[n] = outbox_link_create(CurrentMemoryContext, &events);

	outbox_watchdog_session_begin(limit_ms);
	status = outbox_link_connect_start(link, &target);
	if (status == OUTBOX_LINK_AGAIN)
		status = finish_connect(link, outbox_mono_plus(began, limit_ms));
	outcome->ms = (int) (outbox_mono_passed(began) / 1000);
	outcome->certificate_ends = outbox_link_certificate_ends(link);
	if (status == OUTBOX_LINK_OK)
	{
		outcome->step = STEP_OPEN;
		note_address(link, outcome);
	}
	else if (status == OUTBOX_LINK_LOST)
	{
		const OutboxLinkError *error = outbox_link_error(link);

		outcome->step = step_of(error->reason);
		outcome->detail = pstrdup(error->text);
		outcome->reason = error->reason;
	}
	else
	{
		outbox_link_close(link, false);
		outcome->step = STEP_TCP;
		outcome->detail = psprintf("\"%s:%d\" did not answer within %d ms, which is all the time there is for it.",
								   target.host, target.port, limit_ms);
		outcome->reason = OUTBOX_REASON_TCP_TIMEOUT;
	}
}

/* ------------------------------------------------------------- what is said */

static void
say_tls(OutboxPreflight *preflight, const char *where, const Outcome *outcome)
{
	int64		left_s = outcome->certificate_ends - (int64) time(NULL);
	pg_time_t	ends = (pg_time_t) outcome->certificate_ends;
	char		day[32] = "";
	const char *hint = NULL;
	const char *verified = outbox_tls_verify ? "" :
		", and was not verified (outbox.tls_verify is off)";

	(void) pg_strftime(day, sizeof(day), "%Y-%m-%d", pg_gmtime(&ends));
	if (!preflight->uri.tls)
	{
		if (outbox_allow_plaintext)
			hint = "outbox.allow_plaintext is on: who reads the network between has the password and the messages. Use amqps:// across a network.";
		outbox_preflight_say(preflight, "TLS", OUTBOX_VERDICT_SKIPPED, hint,
							 "Not used: the URI begins with amqp://.");
	}
	else if (outcome->certificate_ends == 0)
		outbox_preflight_say(preflight, "TLS", OUTBOX_VERDICT_GOOD, NULL,
							 psprintf("\"%s\" speaks TLS.", where));
	else if (left_s < 0)
		outbox_preflight_fail(preflight, "TLS", OUTBOX_REASON_TLS_EXPIRED,
							  psprintf("The certificate of \"%s\" expired on %s (UTC)%s.",
									   where, day, verified));
	else
	{
		if (left_s < (int64) EXPIRES_SOON_DAYS * SECONDS_A_DAY)
			hint = "Renew the broker's certificate: when it has expired nothing is published.";
		outbox_preflight_say(preflight, "TLS", OUTBOX_VERDICT_GOOD, hint,
							 psprintf("The certificate of \"%s\" is valid until %s (UTC), for %d days%s.",
									  where, day, (int) (left_s / SECONDS_A_DAY),
									  verified));
	}
}

/* What is said of a step that was passed; TLS has its own. */
static const char *
passed_text(OutboxPreflight *preflight, const OutboxHost *host, Step step,
			const Outcome *outcome)
{
	const char *where = psprintf("%s:%d", host->host, host->port);

	switch (step)
	{
		case STEP_NAME:
			return psprintf("\"%s\" was resolved.", host->host);
		case STEP_TCP:
			return outcome->address[0] == '\0' ?
				psprintf("\"%s\" answers.", where) :
				psprintf("\"%s\" answers at %s.", where, outcome->address);
		case STEP_LOGIN:
			return outbox_auth_mechanism == OUTBOX_AUTH_EXTERNAL ?
				psprintf("\"%s\" lets the user of the client certificate in.", where) :
				psprintf("\"%s\" lets the user \"%s\" in.", where,
						 preflight->uri.user);
		default:
			return psprintf("\"%s\" has opened the virtual host \"%s\", %d ms after the beginning.",
							where, preflight->uri.vhost, outcome->ms);
	}
}

static void
say_outcome(OutboxPreflight *preflight, const OutboxHost *host,
			const Outcome *outcome)
{
	const char *where = psprintf("%s:%d", host->host, host->port);
	const char *skipped = outcome->tried ?
		psprintf("Not tried: \"%s\" was given up at \"%s\".", where,
				 outcome->step < STEP_OPEN ? StepNames[outcome->step] : "") :
		psprintf("Not tried: there was no time left for \"%s\".", where);

	for (Step step = STEP_NAME; step < STEP_OPEN; step++)
	{
		if (!outcome->tried || step > outcome->step)
			outbox_preflight_say(preflight, StepNames[step],
								 OUTBOX_VERDICT_SKIPPED, NULL, skipped);
		else if (step == outcome->step)
			outbox_preflight_fail(preflight, StepNames[step], outcome->reason,
								  outcome->detail);
		else if (step == STEP_TLS)
			say_tls(preflight, where, outcome);
		else
			outbox_preflight_say(preflight, StepNames[step], OUTBOX_VERDICT_GOOD,
								 NULL, passed_text(preflight, host, step, outcome));
	}
}

/*
 * What a host does not need of its share is for those that follow.  One
 * connection stays, for the exchanges.
 */
void
outbox_preflight_connect(OutboxPreflight *preflight)
{
	int			nhosts = preflight->uri.nhosts;

	for (Step step = STEP_NAME; !preflight->usable && step < STEP_OPEN; step++)
		outbox_preflight_say(preflight, StepNames[step], OUTBOX_VERDICT_SKIPPED,
							 NULL, "Not tried: the settings cannot be used.");
	for (int i = 0; preflight->usable && i < nhosts; i++)
	{
		const OutboxHost *host = &preflight->uri.hosts[i];
		int			left_ms = outbox_preflight_left_ms(preflight) -
			OUTBOX_PREFLIGHT_EXCHANGES_MS;
		Outcome		outcome;

		/* at least what a name may take, while it lasts */
		connect_host(preflight, i,
					 Min(left_ms, Max(left_ms / (nhosts - i), RESOLVE_MS)),
					 &outcome);
		say_outcome(preflight, host, &outcome);
		if (!outcome.tried || outcome.step != STEP_OPEN)
			continue;
		if (preflight->link == NULL)
		{
			preflight->link = preflight->links[i];
			preflight->linked = psprintf("%s:%d", host->host, host->port);
		}
		else
			outbox_link_close(preflight->links[i], true);
	}
}
