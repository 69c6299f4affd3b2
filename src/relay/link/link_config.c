/*-------------------------------------------------------------------------
 *
 * link_config.c
 *		Where the broker is, and how to connect to it.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <sys/stat.h>

#include "common/hashfn.h"
#include "link_parts.h"
#include "settings.h"
#include "shared.h"
#include "uri.h"
#include "utils/memutils.h"

void
outbox_link_config_init(OutboxLinkConfig *config)
{
	if (!pg_strong_random(&config->seed, sizeof(config->seed)))
		ereport(ERROR,
				(errcode(ERRCODE_INTERNAL_ERROR),
				 errmsg("could not generate a random number")));
}

/* Looks up each host's password, for whether there is one, and it is still the same. */
static const char *
hash_passwords(OutboxLinkConfig *config, const OutboxUri *uri, uint64 *hash,
			   OutboxReason *reason)
{
	*hash = config->seed;
	for (int i = 0; i < uri->nhosts; i++)
	{
		char	   *password;
		const char *detail;
		size_t		len;

		detail = outbox_login_password(uri, i, &password, reason);
		if (detail != NULL)
			return detail;
		len = strlen(password);
		*hash = hash_bytes_extended((const unsigned char *) password,
									(int) len, *hash);
		explicit_bzero(password, len);
	}
	return NULL;
}

static void
config_failed(OutboxLinkConfig *config, OutboxReason reason, const char *detail)
{
	outbox_slot_set_current_error(OUTBOX_ERROR_SETTINGS, reason, detail, NULL);
	if (config->error == NULL ||
		strcmp(config->error, detail) != 0)
	{
		ereport(LOG,
				(errcode(ERRCODE_CONFIG_FILE_ERROR),
				 errmsg("outbox relay cannot use its settings"),
				 errdetail_internal("%s", detail),
				 errhint("Correct \"outbox.broker_uri\" or \"outbox.passfile\" and reload the configuration.")));
		outbox_slot_set_last_error(detail);
	}
	if (config->error != NULL)
		pfree(config->error);
	config->error = MemoryContextStrdup(TopMemoryContext, detail);
}

/* Another text when the file has been replaced, as by a renewed certificate. */
static char *
file_stamp(const char *path)
{
	struct stat st;

	if (path[0] == '\0')
		return "";
	if (stat(path, &st) != 0)
		return psprintf("%s is not there", path);
	return psprintf("%s %lu %lu %ld.%09ld %ld.%09ld", path,
					(unsigned long) st.st_ino, (unsigned long) st.st_size,
					(long) st.st_mtim.tv_sec, (long) st.st_mtim.tv_nsec,
					(long) st.st_ctim.tv_sec, (long) st.st_ctim.tv_nsec);
}

/* The settings of TLS, and the state of their files. */
static char *
tls_text(bool tls)
{
	if (!tls)
		return psprintf("%d", outbox_allow_plaintext);
	return psprintf("%d %d %s %s %s %s", outbox_tls_verify,
					outbox_auth_mechanism,
					file_stamp(outbox_tls_ca_file),
					file_stamp(outbox_tls_cert_file),
					file_stamp(outbox_tls_key_file),
					file_stamp(outbox_tls_key_passfile));
}

OutboxLinkConfigChange
outbox_link_config_load(OutboxLinkConfig *config)
{
	MemoryContext new_cxt = AllocSetContextCreate(TopMemoryContext, "outbox config",
												  ALLOCSET_SMALL_SIZES);
	MemoryContext old = MemoryContextSwitchTo(new_cxt);
	OutboxUri	uri;
	const char *detail;
	OutboxReason reason = OUTBOX_REASON_URI;
	char	   *text;
	uint64		passwords = 0;
	OutboxLinkConfigChange change;

	detail = outbox_uri_parse(outbox_broker_uri, &uri);
	if (detail == NULL)
		detail = hash_passwords(config, &uri, &passwords, &reason);
	if (detail != NULL)
	{
		config_failed(config, reason, detail);
		MemoryContextSwitchTo(old);
		MemoryContextDelete(new_cxt);
		return OUTBOX_LINK_CONFIG_SAME;
	}

	text = psprintf("%s %s %s %d", outbox_broker_uri, outbox_passfile,
					tls_text(uri.tls), outbox_heartbeat_s);
	MemoryContextSwitchTo(old);
	outbox_slot_clear_current_error(OUTBOX_ERROR_SETTINGS);
	if (config->error != NULL)
	{
		ereport(LOG, (errmsg("outbox relay can use its settings again")));
		pfree(config->error);
		config->error = NULL;
	}
	if (config->text != NULL && strcmp(config->text, text) == 0 &&
		config->passwords == passwords)
	{
		MemoryContextDelete(new_cxt);
		return OUTBOX_LINK_CONFIG_SAME;
	}
	change = config->text != NULL ?
		OUTBOX_LINK_CONFIG_CHANGED : OUTBOX_LINK_CONFIG_FIRST;
	if (config->uri_cxt != NULL)
		MemoryContextDelete(config->uri_cxt);
	config->uri_cxt = new_cxt;
	config->text = text;
	config->passwords = passwords;
	config->uri = uri;
	return change;
}
