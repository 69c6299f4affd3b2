/*-------------------------------------------------------------------------
 *
 * broker_tls_files.c
 *		The files of TLS: whom to trust, who we are.
 *
 * They are read again for each connection, so that a certificate is renewed by
 * replacing its file.  Not by the library nor by OpenSSL: these open whatever they
 * find, and would wait in a pipe without end, or for a passphrase on the terminal;
 * librabbitmq moreover can only add to the authorities of the system, in
 * versions that start with those.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>

#include "broker_internal.h"
#include "setting_file.h"
#include "settings.h"
#include "utils/memutils.h"

/* All authorities of a large system are a tenth of it; a key is of a few kB. */
#define TLS_FILE_MAX_BYTES	(4 * 1024 * 1024)
#define SECRET_MAX_BYTES	(64 * 1024)

/* Longer ones OpenSSL does not take from a file's header either. */
#define PASSPHRASE_MAX_BYTES 1024

typedef struct Passphrase
{
	char		text[PASSPHRASE_MAX_BYTES];
	int			len;			/* -1: there is none */
	bool		asked;			/* so the key is encrypted */
} Passphrase;

/* NULL: where nothing should be encrypted; OpenSSL's own asks on the terminal. */
static int
give_passphrase(char *buffer, int size, int rwflag, void *arg)
{
	Passphrase *passphrase = arg;

	(void) rwflag;
	if (passphrase == NULL)
		return -1;
	passphrase->asked = true;
	if (passphrase->len < 0 || passphrase->len > size)
		return -1;
	memcpy(buffer, passphrase->text, passphrase->len);
	return passphrase->len;
}

/* OpenSSL has said why. */
static OutboxLinkStatus
fail_files(OutboxLink *link, const char *what)
{
	return outbox_link_fail_tls(link, OUTBOX_REASON_TLS_FILES, what,
								outbox_link_openssl_text());
}

/* The number of bytes in content; -1 when the link has failed. */
static ssize_t
read_file(OutboxLink *link, const char *setting, const char *path, bool secret,
		  char *content)
{
	OutboxFileError file_error;
	ssize_t		len = outbox_setting_file_read(path, secret, content,
											   secret ? SECRET_MAX_BYTES :
											   TLS_FILE_MAX_BYTES, &file_error);
	bool		mode = file_error == OUTBOX_FILE_NOT_OURS ||
		file_error == OUTBOX_FILE_NOT_PRIVATE;
	const char *text = outbox_file_error_text(file_error);
	char		what[MAXPGPATH + NAMEDATALEN];

	if (file_error == OUTBOX_FILE_FINE)
		return len;
	snprintf(what, sizeof(what), "file \"%s\" of %s", path, setting);
	(void) outbox_link_fail_tls(link, mode ? OUTBOX_REASON_TLS_KEY_MODE :
								OUTBOX_REASON_TLS_FILES, what, text);
	return -1;
}

/* The file in memory, which the caller closes; NULL when the link has failed. */
static BIO *
open_pem(OutboxLink *link, const char *setting, const char *path, bool secret,
		 char *content)
{
	ssize_t		len = read_file(link, setting, path, secret, content);
	BIO		   *bio = len >= 0 ? BIO_new_mem_buf(content, (int) len) : NULL;

	if (len >= 0 && bio == NULL)
		(void) outbox_link_fail_tls_memory(link);
	return bio;
}

/* Whether a file has simply come to its end. */
static bool
no_more_certificates(void)
{
	unsigned long error = ERR_peek_last_error();

	if (ERR_GET_LIB(error) != ERR_LIB_PEM ||
		ERR_GET_REASON(error) != PEM_R_NO_START_LINE)
		return false;
	ERR_clear_error();
	return true;
}

/* Trusts the authorities of the file, and no other; false: it has none, or more. */
static bool
trust(SSL_CTX *context, BIO *bio)
{
	X509_STORE *store = X509_STORE_new();
	X509	   *authority;
	int			n = 0;
	bool		ok = store != NULL;

	while (ok && (authority = PEM_read_bio_X509_AUX(bio, NULL,
													give_passphrase, NULL)) != NULL)
	{
		ok = X509_STORE_add_cert(store, authority) == 1;
		X509_free(authority);
		n++;
	}
	if (!ok || n == 0 || !no_more_certificates())
	{
		X509_STORE_free(store);
		return false;
	}
	SSL_CTX_set_cert_store(context, store);
	return true;
}

static OutboxLinkStatus
load_authorities(OutboxLink *link, SSL_CTX *context, char *content)
{
	BIO		   *bio;
	bool		ok;

	if (outbox_tls_ca_file[0] == '\0')
		return SSL_CTX_set_default_verify_paths(context) == 1 ? OUTBOX_LINK_OK :
			fail_files(link, "could not load the system's CA certificates");
	bio = open_pem(link, "outbox.tls_ca_file", outbox_tls_ca_file, false,
				   content);
	if (bio == NULL)
		return OUTBOX_LINK_LOST;
	ok = trust(context, bio);
	(void) BIO_free(bio);
	return ok ? OUTBOX_LINK_OK : fail_files(link, "could not load the CA file");
}

/* Our certificate, and those between it and an authority. */
static bool
use_chain(SSL_CTX *context, BIO *bio)
{
	X509	   *certificate = PEM_read_bio_X509_AUX(bio, NULL, give_passphrase,
												 NULL);
	bool		ok = certificate != NULL &&
		SSL_CTX_use_certificate(context, certificate) == 1;

	X509_free(certificate);
	while (ok && (certificate = PEM_read_bio_X509(bio, NULL, give_passphrase,
												  NULL)) != NULL)
	{
		/* takes it over, unless it fails */
		ok = SSL_CTX_add0_chain_cert(context, certificate) == 1;
		if (!ok)
			X509_free(certificate);
	}
	return ok && no_more_certificates();
}

/*
 * The first line of the file, as who writes it leaves a line's end behind it.  A
 * file that is named must be of use, also when the key does not need it today.
 */
static OutboxLinkStatus
load_passphrase(OutboxLink *link, char *content, Passphrase *passphrase)
{
	const char *end;
	ssize_t		len;

	if (outbox_tls_key_passfile[0] == '\0')
		return OUTBOX_LINK_OK;
	len = read_file(link, "outbox.tls_key_passfile",
					outbox_tls_key_passfile, true, content);
	if (len < 0)
		return OUTBOX_LINK_LOST;
	end = memchr(content, '\n', len);
	if (end != NULL)
		len = end - content;
	if (len > 0 && content[len - 1] == '\r')
		len--;
	if (len == 0 || len > (ssize_t) sizeof(passphrase->text))
		return outbox_link_fail_tls(link, OUTBOX_REASON_TLS_FILES,
									"could not use the file of outbox.tls_key_passfile",
									len == 0 ? "its first line is empty" :
									"its first line is longer than 1024 bytes");
	memcpy(passphrase->text, content, len);
	passphrase->len = (int) len;
	return OUTBOX_LINK_OK;
}

static OutboxLinkStatus
fail_key(OutboxLink *link, const Passphrase *passphrase)
{
	if (!passphrase->asked)
		return fail_files(link, "could not load the private key of the client certificate");
	return outbox_link_fail_tls(link, OUTBOX_REASON_TLS_PASSPHRASE,
								"could not decrypt the private key of the client certificate",
								passphrase->len < 0 ?
								"outbox.tls_key_passfile is not set" :
								"the passphrase in the file of outbox.tls_key_passfile is wrong");
}

static OutboxLinkStatus
load_key(OutboxLink *link, SSL_CTX *context, const char *path, char *content,
		 Passphrase *passphrase)
{
	BIO		   *bio;
	EVP_PKEY   *key;
	bool		ok;

	if (load_passphrase(link, content, passphrase) != OUTBOX_LINK_OK)
		return OUTBOX_LINK_LOST;
	bio = open_pem(link, path == outbox_tls_key_file ?
				   "outbox.tls_key_file" : "outbox.tls_cert_file", path, true,
				   content);
	if (bio == NULL)
		return OUTBOX_LINK_LOST;
	key = PEM_read_bio_PrivateKey(bio, NULL, give_passphrase, passphrase);
	(void) BIO_free(bio);
	if (key == NULL)
		return fail_key(link, passphrase);
	/* checks that it is the certificate's */
	ok = SSL_CTX_use_PrivateKey(context, key) == 1;
	EVP_PKEY_free(key);
	return ok ? OUTBOX_LINK_OK :
		fail_files(link, "could not use the client certificate with its key");
}

static OutboxLinkStatus
load_certificate(OutboxLink *link, SSL_CTX *context, char *content)
{
	const char *cert = outbox_tls_cert_file;
	const char *key = outbox_tls_key_file;
	static const char key_line[] = "PRIVATE KEY-----";
	Passphrase	passphrase = {.len = -1};
	OutboxLinkStatus status;
	BIO		   *bio;
	bool		ok;
	bool		keyed;

	if (cert[0] == '\0')
		return OUTBOX_LINK_OK;
	Assert(content != NULL);
	bio = open_pem(link, "outbox.tls_cert_file", cert, false, content);
	if (bio == NULL)
		return OUTBOX_LINK_LOST;
	/* before the file has to be private, which one without a key need not be */
	keyed = memmem(content, BIO_pending(bio), key_line,
				   strlen(key_line)) != NULL;
	ok = use_chain(context, bio);
	(void) BIO_free(bio);
	if (!ok)
		return fail_files(link, "could not load the client certificate");
	if (key[0] == '\0' && !keyed)
		return outbox_link_fail_tls(link, OUTBOX_REASON_TLS_FILES,
									"the client certificate has no private key",
									"outbox.tls_key_file is not set, and the file of outbox.tls_cert_file has none");
	status = load_key(link, context, key[0] != '\0' ? key : cert, content,
					  &passphrase);
	explicit_bzero(&passphrase, sizeof(passphrase));
	return status;
}

/*
 * Reads all files that the target names into the context, or fails.  Throws
 * nothing, as all of a connect.
 */
OutboxLinkStatus
outbox_link_load_tls_files(OutboxLink *link, SSL_CTX *context)
{
	bool		any = outbox_tls_ca_file[0] != '\0' ||
		outbox_tls_cert_file[0] != '\0';
	char	   *content = NULL;
	OutboxLinkStatus status = OUTBOX_LINK_OK;

	if (any)
		content = MemoryContextAllocExtended(link->target_context,
											 TLS_FILE_MAX_BYTES,
											 MCXT_ALLOC_NO_OOM);
	if (any && content == NULL)
		return outbox_link_fail_tls_memory(link);
	SSL_CTX_set_default_passwd_cb(context, give_passphrase);
	if (outbox_tls_verify)
		status = load_authorities(link, context, content);
	if (status == OUTBOX_LINK_OK)
		status = load_certificate(link, context, content);
	if (!any)
		return status;
	/* a key was in it, perhaps behind its certificates, and a passphrase */
	explicit_bzero(content, TLS_FILE_MAX_BYTES);
	pfree(content);
	return status;
}
