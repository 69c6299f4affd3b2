/*-------------------------------------------------------------------------
 *
 * lossy-link.c
 *		A network of its own whose packets are late, lost or out of order.
 *
 * usage: lossy-link [--lifetime SECONDS]
 *
 * To be run in a network namespace that is the caller's own (unshare --net): it
 * makes the interface "lossy" there, with the address 10.99.0.1 and an MTU of
 * 1500, prints "ready 0", and from then on whoever connects to 10.99.0.2 reaches
 * 10.99.0.1 by way of it, in both directions.  It does so by giving each packet
 * back with its two addresses exchanged, which leaves the checksums as they are.
 *
 * The interface is one end of a veth, made by the program ip; at the other end
 * the packets are read and written.  (tc and its netem would do as much, but many
 * kernels have no netem.)
 *
 * Lines on stdin say what is to be done, and each is answered by "ok ..." or
 * "error ...":
 *
 *	delay MS [JITTER]	each packet is so late, each way, and up to so much later;
 *						they keep their order
 *	rate BYTES			so many bytes a second each way, through a queue of
 *						QUEUE_BYTES that drops what does not fit; 0: no limit
 *	loss PERMILLE		so many of a thousand packets are lost
 *	reorder PERMILLE	so many overtake those in front of them
 *	seed N				for the random numbers
 *	stats				packets=N lost=N dropped=N
 *	quit
 *
 *-------------------------------------------------------------------------
 */
#define _GNU_SOURCE

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/ethtool.h>
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "commands.h"

#define NAME			"lossy"
#define FAR_END			"lossy1"
#define ADDRESS			"10.99.0.1"
#define FRAME_BYTES		(ETH_HLEN + 1500)
#define QUEUE_BYTES		65536	/* as a cheap router has */
#define IP_SOURCE		12		/* in the header of IPv4 */
#define IP_DESTINATION	16
#define IP_BYTES		20

struct packet
{
	struct packet *next;
	int64_t		due_us;
	size_t		len;
	unsigned char data[];
};

/* To 10.99.0.2, and back from there. */
static struct direction
{
	struct packet *head;
	struct packet *tail;
	int64_t		free_us;		/* when the line has sent what it took */
}			directions[2];

static int	wire = -1;
static int64_t delay_us;
static int64_t jitter_us;
static int64_t rate;
static int	loss;
static int	reorder;
static uint64_t npackets;
static uint64_t nlost;
static uint64_t ndropped;

static void
die(const char *what)
{
	fprintf(stderr, "lossy-link: %s: %s\n", what, strerror(errno));
	exit(1);
}

static int64_t
now_us(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (int64_t) now.tv_sec * 1000000 + now.tv_nsec / 1000;
}

static bool
drawn(int permille)
{
	return random() % 1000 < permille;
}

/* ---------------------------------------------------------------- interface */

/* Packets as they are on a wire: complete checksums, and no larger than it takes. */
static void
switch_offload_off(const char *name)
{
	static const uint32_t commands[] = {ETHTOOL_STXCSUM, ETHTOOL_STSO, ETHTOOL_SGSO};
	struct ifreq request;

	memset(&request, 0, sizeof(request));
	strncpy(request.ifr_name, name, IFNAMSIZ - 1);
	for (size_t i = 0; i < sizeof(commands) / sizeof(commands[0]); i++)
	{
		struct ethtool_value value = {commands[i], 0};

		request.ifr_data = (char *) &value;
		if (ioctl(wire, SIOCETHTOOL, &request) != 0 && i == 0)
			die("ETHTOOL_STXCSUM");
	}
}

static void
open_interface(void)
{
	struct sockaddr_ll address;

	/* without ARP each packet is addressed to the interface itself */
	if (system("ip link set lo up"
			   " && ip link add " NAME " type veth peer name " FAR_END
			   " && ip addr add " ADDRESS "/24 dev " NAME
			   " && ip link set " NAME " arp off up"
			   " && ip link set " FAR_END " arp off up") != 0)
	{
		fprintf(stderr, "lossy-link: cannot make an interface\n");
		exit(1);
	}
	wire = socket(AF_PACKET, SOCK_RAW | SOCK_NONBLOCK | SOCK_CLOEXEC,
				  htons(ETH_P_IP));
	if (wire < 0)
		die("socket");
	switch_offload_off(NAME);
	switch_offload_off(FAR_END);
	memset(&address, 0, sizeof(address));
	address.sll_family = AF_PACKET;
	address.sll_protocol = htons(ETH_P_IP);
	address.sll_ifindex = if_nametoindex(FAR_END);
	if (bind(wire, (struct sockaddr *) &address, sizeof(address)) != 0)
		die("bind");
}

/* ------------------------------------------------------------------ packets */

static void
swap_addresses(unsigned char *frame)
{
	unsigned char *data = frame + ETH_HLEN;
	unsigned char source[4];

	memcpy(source, data + IP_SOURCE, 4);
	memcpy(data + IP_SOURCE, data + IP_DESTINATION, 4);
	memcpy(data + IP_DESTINATION, source, 4);
}

/*
 * Both ways look alike, from 10.99.0.1 to 10.99.0.2: the client's port is the one
 * of the connection that the kernel chose, so the larger one.
 */
static int
direction_of(const unsigned char *frame)
{
	const unsigned char *data = frame + ETH_HLEN;
	size_t		at = (data[0] & 0x0f) * 4;
	int			from = data[at] << 8 | data[at + 1];
	int			to = data[at + 2] << 8 | data[at + 3];

	return from >= to ? 0 : 1;
}

static void
enqueue(struct direction *d, struct packet *packet)
{
	int64_t		now = now_us();
	int64_t		start = d->free_us > now ? d->free_us : now;

	if (rate > 0 && (start - now) * rate / 1000000 > QUEUE_BYTES)
	{
		ndropped++;
		free(packet);
		return;
	}
	if (rate > 0)
		d->free_us = start + (int64_t) packet->len * 1000000 / rate;
	else
		d->free_us = start;
	packet->due_us = d->free_us + delay_us +
		(jitter_us > 0 ? random() % jitter_us : 0);
	packet->next = NULL;
	if (d->head == NULL)
		d->head = packet;
	else if (drawn(reorder))
	{
		packet->due_us = d->head->due_us;
		packet->next = d->head;
		d->head = packet;
		return;
	}
	else
	{
		if (packet->due_us < d->tail->due_us)
			packet->due_us = d->tail->due_us;
		d->tail->next = packet;
	}
	d->tail = packet;
}

static void
take_packets(void)
{
	for (;;)
	{
		struct packet *packet = malloc(sizeof(struct packet) + FRAME_BYTES);
		struct sockaddr_ll from;
		socklen_t	from_len = sizeof(from);
		ssize_t		n;

		if (packet == NULL)
			die("malloc");
		n = recvfrom(wire, packet->data, FRAME_BYTES, 0,
					 (struct sockaddr *) &from, &from_len);
		if (n < ETH_HLEN + IP_BYTES + 4 || from.sll_pkttype == PACKET_OUTGOING)
		{
			free(packet);
			if (n < 0)
				return;
			continue;
		}
		npackets++;
		if (drawn(loss))
		{
			nlost++;
			free(packet);
			continue;
		}
		packet->len = n;
		enqueue(&directions[direction_of(packet->data)], packet);
	}
}

/* Returns in how many microseconds the next one is due, -1 for never. */
static int64_t
give_packets(void)
{
	int64_t		wait_us = -1;

	for (int i = 0; i < 2; i++)
	{
		struct direction *d = &directions[i];
		int64_t		now = now_us();

		while (d->head != NULL && d->head->due_us <= now)
		{
			struct packet *packet = d->head;

			swap_addresses(packet->data);
			if (send(wire, packet->data, packet->len, 0) < 0 &&
				(errno == EAGAIN || errno == ENOBUFS))
			{
				swap_addresses(packet->data);
				return 1000;
			}
			d->head = packet->next;
			free(packet);
		}
		if (d->head != NULL &&
			(wait_us < 0 || d->head->due_us - now < wait_us))
			wait_us = d->head->due_us - now;
	}
	return wait_us;
}

/* ----------------------------------------------------------------- commands */

static void
run_command(char *line)
{
	char	   *save = NULL;
	char	   *word = strtok_r(line, " \r\n", &save);
	char	   *first = strtok_r(NULL, " \r\n", &save);
	char	   *second = strtok_r(NULL, " \r\n", &save);

	if (word != NULL && strcmp(word, "quit") == 0)
		exit(0);
	if (word != NULL && strcmp(word, "stats") == 0)
	{
		printf("ok packets=%llu lost=%llu dropped=%llu\n",
			   (unsigned long long) npackets, (unsigned long long) nlost,
			   (unsigned long long) ndropped);
		fflush(stdout);
		return;
	}
	if (word == NULL || first == NULL)
		word = "";
	if (strcmp(word, "delay") == 0)
	{
		delay_us = atoll(first) * 1000;
		jitter_us = second == NULL ? 0 : atoll(second) * 1000;
	}
	else if (strcmp(word, "rate") == 0)
		rate = atoll(first);
	else if (strcmp(word, "loss") == 0)
		loss = atoi(first);
	else if (strcmp(word, "reorder") == 0)
		reorder = atoi(first);
	else if (strcmp(word, "seed") == 0)
		srandom(atoi(first));
	else
	{
		puts("error no such command");
		fflush(stdout);
		return;
	}
	puts("ok");
	fflush(stdout);
}

int
main(int argc, char **argv)
{
	int64_t		ends_us = now_us() + (int64_t) 900 * 1000000;
	pid_t		parent = getppid();

	if (argc == 3 && strcmp(argv[1], "--lifetime") == 0)
		ends_us = now_us() + (int64_t) (atof(argv[2]) * 1e6);
	else if (argc != 1)
	{
		fprintf(stderr, "usage: lossy-link [--lifetime SECONDS]\n");
		return 2;
	}
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	fcntl(STDIN_FILENO, F_SETFL, fcntl(STDIN_FILENO, F_GETFL) | O_NONBLOCK);
	open_interface();
	puts("ready 0");
	fflush(stdout);
	while (now_us() < ends_us && getppid() == parent)
	{
		struct pollfd polled[2] = {{.fd = STDIN_FILENO,.events = POLLIN},
		{.fd = wire,.events = POLLIN}};
		int64_t		wait_us = give_packets();
		struct timespec wait = {0, 200000000};

		if (wait_us >= 0 && wait_us < 200000)
			wait.tv_nsec = wait_us * 1000;
		if (ppoll(polled, 2, &wait, NULL) <= 0)
			continue;
		if (polled[0].revents != 0)
			read_commands(run_command);
		if (polled[1].revents != 0)
			take_packets();
	}
	return 0;
}
