/*-------------------------------------------------------------------------
 *
 * hostile.c
 *		A broker that says what it was given, whatever the client says.
 *
 * It lives in the client's own thread: recv() and poll() of the link and of
 * librabbitmq (which is linked statically for that, with --wrap) come here first.
 * The sockets are real ones.
 *
 *-------------------------------------------------------------------------
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <openssl/evp.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "hostile.h"

extern ssize_t __real_recv(int fd, void *buffer, size_t len, int flags);
extern ssize_t __wrap_recv(int fd, void *buffer, size_t len, int flags);
extern int	__real_poll(struct pollfd *fds, nfds_t nfds, int timeout);
extern int	__wrap_poll(struct pollfd *fds, nfds_t nfds, int timeout);

static int	listener = -1;
static int	peer = -1;
static SSL_CTX *tls_context;
static SSL *tls;				/* over two memory BIOs */

static FuzzScript script;
static size_t sent;				/* of the script */
static size_t heard;
static uint32_t cut;			/* state of the generator that cuts pieces */
static bool ended;

static void
must(bool good, const char *what)
{
	if (good)
		return;
	perror(what);
	exit(2);
}

int
fuzz_broker_start(void)
{
	struct sockaddr_in address = {.sin_family = AF_INET};
	socklen_t	len = sizeof(address);

	address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	listener = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	must(listener >= 0, "socket");
	must(bind(listener, (struct sockaddr *) &address, sizeof(address)) == 0, "bind");
	must(listen(listener, 16) == 0, "listen");
	must(getsockname(listener, (struct sockaddr *) &address, &len) == 0, "getsockname");
	return ntohs(address.sin_port);
}

/* A certificate of its own: the client is told not to verify. */
static void
make_tls_context(void)
{
	EVP_PKEY   *key = EVP_EC_gen("P-256");
	X509	   *certificate = X509_new();

	tls_context = SSL_CTX_new(TLS_server_method());
	X509_gmtime_adj(X509_getm_notBefore(certificate), 0);
	X509_gmtime_adj(X509_getm_notAfter(certificate), 86400);
	X509_set_pubkey(certificate, key);
	must(X509_sign(certificate, key, EVP_sha256()) > 0 &&
		 SSL_CTX_use_certificate(tls_context, certificate) == 1 &&
		 SSL_CTX_use_PrivateKey(tls_context, key) == 1, "certificate");
	SSL_CTX_set_num_tickets(tls_context, 0);
	X509_free(certificate);
	EVP_PKEY_free(key);
}

/* By RST: ports in TIME_WAIT would soon be all that there are. */
static void
drop_peer(void)
{
	struct linger at_once = {1, 0};

	if (peer < 0)
		return;
	(void) setsockopt(peer, SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once));
	close(peer);
	peer = -1;
	SSL_free(tls);
	tls = NULL;
}

/* The newest connection counts: with TLS the link makes two. */
static void
take_connection(void)
{
	int			fd;

	while ((fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC)) >= 0)
	{
		drop_peer();
		peer = fd;
		ended = false;
		sent = 0;
		cut = script.pieces;
		if (!script.tls)
			continue;
		if (tls_context == NULL)
			make_tls_context();
		tls = SSL_new(tls_context);
		SSL_set_bio(tls, BIO_new(BIO_s_mem()), BIO_new(BIO_s_mem()));
		SSL_set_accept_state(tls);
	}
}

static void
hear(void)
{
	char		buffer[65536];
	ssize_t		n;

	while ((n = __real_recv(peer, buffer, sizeof(buffer), MSG_DONTWAIT)) > 0)
	{
		heard += n;
		if (tls != NULL)
			BIO_write(SSL_get_rbio(tls), buffer, (int) n);
	}
}

static size_t
next_piece(void)
{
	size_t		left = script.size - sent;
	size_t		piece;

	if (script.pieces == 0)
		return left;
	cut = cut * 1103515245 + 12345;
	piece = 1 + ((cut >> 8) & ((2u << ((cut >> 24) & 15)) - 1));
	return piece < left ? piece : left;
}

/* Returns how much was taken, at least of what TLS makes of it. */
static size_t
say(const uint8_t *bytes, size_t size)
{
	char		buffer[16384];
	char	   *encrypted;
	long		n;
	ssize_t		rc;

	if (tls == NULL)
	{
		rc = send(peer, bytes, size, MSG_DONTWAIT | MSG_NOSIGNAL);
		return rc > 0 ? (size_t) rc : 0;
	}
	if (!SSL_is_init_finished(tls))
		(void) SSL_do_handshake(tls);
	else
	{
		while (SSL_read(tls, buffer, sizeof(buffer)) > 0)
			;
		if (size > 16384)
			size = 16384;
		if (size > 0 && SSL_write(tls, bytes, (int) size) <= 0)
			size = 0;
	}
	n = BIO_get_mem_data(SSL_get_wbio(tls), &encrypted);
	rc = send(peer, encrypted, n, MSG_DONTWAIT | MSG_NOSIGNAL);
	for (; rc > 0; rc -= n)
		n = BIO_read(SSL_get_wbio(tls), buffer, (int) (rc < (ssize_t) sizeof(buffer) ? rc : (ssize_t) sizeof(buffer)));
	return SSL_is_init_finished(tls) ? size : 0;
}

static void
end_script(void)
{
	if (ended || script.stays || (tls != NULL && !SSL_is_init_finished(tls)))
		return;
	/* what TLS still has goes first */
	if (tls != NULL && BIO_ctrl_pending(SSL_get_wbio(tls)) > 0)
		return;
	ended = true;
	if (script.reset)
		drop_peer();
	else
		(void) shutdown(peer, SHUT_WR);
}

bool		fuzz_broker_busy;

static void
go_on(void)
{
	int			save_errno = errno;

	if (listener < 0)
		return;
	fuzz_broker_busy = true;
	take_connection();
	if (peer >= 0)
		hear();
	if (peer >= 0 && !ended)
	{
		sent += say(script.bytes + sent, next_piece());
		if (sent == script.size)
			end_script();
	}
	fuzz_broker_busy = false;
	errno = save_errno;
}

ssize_t
__wrap_recv(int fd, void *buffer, size_t len, int flags)
{
	go_on();
	return __real_recv(fd, buffer, len, flags);
}

int
__wrap_poll(struct pollfd *fds, nfds_t nfds, int timeout)
{
	go_on();
	return __real_poll(fds, nfds, timeout);
}

void
fuzz_broker_play(const FuzzScript *what)
{
	fuzz_broker_end();
	script = *what;
	sent = heard = 0;
	ended = false;
}

void
fuzz_broker_end(void)
{
	take_connection();
	drop_peer();
}

size_t
fuzz_broker_left(void)
{
	return script.size - sent;
}

size_t
fuzz_broker_heard(void)
{
	return heard;
}
