/* A PGM source or receiver that uses libpgm, OpenPGM's library.
 *
 *   libpgm_peer send ADDRESS GROUP PORT BYTES_PER_S COUNT SIZE
 *   libpgm_peer receive ADDRESS GROUP PORT BYTES_PER_S COUNT 0
 *
 * Both print "ready" first. A receiver then prints the length and the FNV-1a hash of each APDU, and "reset" for what it
 * has lost; a source sends when a line comes on standard input, prints "sent", and repairs. Both end at the end of
 * standard input, a receiver also after COUNT APDUs, and print the microseconds of processor time since they were ready.
 * IP protocol 113. */
#include <errno.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <arpa/inet.h>
#include <netinet/in.h>
#include <pgm/pgm.h>

#define LARGEST 65536

static void fail(const char *what, pgm_error_t *error)
{
	fprintf(stderr, "%s: %s\n", what, error && error->message ? error->message : "failed");
	exit(3);
}

static void set(pgm_sock_t *sock, int option, int value)
{
	if (!pgm_setsockopt(sock, IPPROTO_PGM, option, &value, sizeof value)) {
		fprintf(stderr, "option %#x cannot be %d\n", option, value);
		exit(3);
	}
}

static long cpu_us(void)
{
	struct rusage usage;
	getrusage(RUSAGE_SELF, &usage);
	return (usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) * 1000000L + usage.ru_utime.tv_usec + usage.ru_stime.tv_usec;
}

static pgm_sock_t *open_socket(int sending, const char *address, const char *group, int port, int rate)
{
	pgm_error_t *error = NULL;
	struct pgm_addrinfo_t *found = NULL;
	pgm_sock_t *sock = NULL;
	char network[128];
	snprintf(network, sizeof network, "%s;%s", address, group);
	if (!pgm_getaddrinfo(network, NULL, &found, &error))
		fail("pgm_getaddrinfo", error);
	if (!pgm_socket(&sock, AF_INET, SOCK_SEQPACKET, IPPROTO_PGM, &error))
		fail("pgm_socket", error);
	set(sock, PGM_IP_ROUTER_ALERT, 0);
	set(sock, PGM_MTU, 1500);
	if (sending) {
		const int heartbeats[] = {100000, 100000, 100000, 1300000, 7000000, 16000000, 25000000, 30000000};
		set(sock, PGM_SEND_ONLY, 1);
		set(sock, PGM_TXW_SQNS, 20000);
		set(sock, PGM_TXW_MAX_RTE, rate);
		set(sock, PGM_AMBIENT_SPM, 500000);
		pgm_setsockopt(sock, IPPROTO_PGM, PGM_HEARTBEAT_SPM, heartbeats, sizeof heartbeats);
	} else {
		set(sock, PGM_RECV_ONLY, 1);
		set(sock, PGM_PASSIVE, 0);
		set(sock, PGM_RXW_SQNS, 20000);
		set(sock, PGM_PEER_EXPIRY, 300000000);
		set(sock, PGM_SPMR_EXPIRY, 250000);
		set(sock, PGM_NAK_BO_IVL, 50000);
		set(sock, PGM_NAK_RPT_IVL, 750000);
		set(sock, PGM_NAK_RDATA_IVL, 2000000);
		set(sock, PGM_NAK_DATA_RETRIES, 10);
		set(sock, PGM_NAK_NCF_RETRIES, 10);
	}
	struct pgm_sockaddr_t here;
	memset(&here, 0, sizeof here);
	here.sa_port = port;
	here.sa_addr.sport = 0;
	if (!pgm_gsi_create_from_data(&here.sa_addr.gsi, (const uint8_t *)address, strlen(address)))
		fail("pgm_gsi_create_from_data", NULL);
	struct pgm_interface_req_t interface;
	memset(&interface, 0, sizeof interface);
	interface.ir_interface = found->ai_recv_addrs[0].gsr_interface;
	interface.ir_address = found->ai_recv_addrs[0].gsr_addr;
	if (!pgm_bind3(sock, &here, sizeof here, &interface, sizeof interface, &interface, sizeof interface, &error))
		fail("pgm_bind3", error);
	for (unsigned at = 0; at < found->ai_recv_addrs_len; at++)
		pgm_setsockopt(sock, IPPROTO_PGM, PGM_JOIN_GROUP, &found->ai_recv_addrs[at], sizeof found->ai_recv_addrs[at]);
	pgm_setsockopt(sock, IPPROTO_PGM, PGM_SEND_GROUP, &found->ai_send_addrs[0], sizeof found->ai_send_addrs[0]);
	pgm_freeaddrinfo(found);
	set(sock, PGM_MULTICAST_LOOP, 0);
	set(sock, PGM_MULTICAST_HOPS, 1);
	set(sock, PGM_NOBLOCK, 1);
	if (!pgm_connect(sock, &error))
		fail("pgm_connect", error);
	return sock;
}

/* Waits for packets, for standard input if `input` asks for it, or until libpgm needs to run. Returns whether there is input. */
static int wait_for(pgm_sock_t *sock, int status, int input)
{
	struct pollfd files[8];
	int count = 7, timeout = 1000;
	struct timeval remaining;
	socklen_t size = sizeof remaining;
	if (status == PGM_IO_STATUS_TIMER_PENDING || status == PGM_IO_STATUS_RATE_LIMITED) {
		const int option = status == PGM_IO_STATUS_RATE_LIMITED ? PGM_RATE_REMAIN : PGM_TIME_REMAIN;
		pgm_getsockopt(sock, IPPROTO_PGM, option, &remaining, &size);
		timeout = remaining.tv_sec * 1000 + (remaining.tv_usec + 999) / 1000;
	}
	memset(files, 0, sizeof files);
	files[0].fd = input ? 0 : -1;
	files[0].events = POLLIN;
	pgm_poll_info(sock, files + 1, &count, POLLIN);
	poll(files, count + 1, timeout);
	return files[0].revents != 0;
}

static uint64_t hash(const unsigned char *data, size_t size)
{
	uint64_t found = 14695981039346656037ULL;
	for (size_t at = 0; at < size; at++)
		found = (found ^ data[at]) * 1099511628211ULL;
	return found;
}

static int receive(pgm_sock_t *sock, unsigned char *buffer, size_t *size)
{
	pgm_error_t *error = NULL;
	struct pgm_sockaddr_t from;
	socklen_t length = sizeof from;
	const int status = pgm_recvfrom(sock, buffer, LARGEST, 0, size, &from, &length, &error);
	if (error)
		pgm_error_free(error);
	return status;
}

int main(int count_of_arguments, char **arguments)
{
	static unsigned char buffer[LARGEST];
	pgm_error_t *error = NULL;
	size_t size = 0;
	if (count_of_arguments != 8)
		return 2;
	const int sending = strcmp(arguments[1], "send") == 0;
	const long wanted = atol(arguments[6]), length = atol(arguments[7]);
	if (!pgm_init(&error))
		fail("pgm_init", error);
	pgm_sock_t *sock =
		open_socket(sending, arguments[2], arguments[3], atoi(arguments[4]), atoi(arguments[5]));
	const long before_us = cpu_us();
	puts("ready");
	fflush(stdout);
	int status = PGM_IO_STATUS_WOULD_BLOCK;
	long done = 0, started = sending ? 0 : 1;
	for (;;) {
		if (sending && started && done < wanted) {
			memset(buffer, 0, length);
			snprintf((char *)buffer, LARGEST, "%ld", done);
			status = pgm_send(sock, buffer, length, NULL);
			if (status == PGM_IO_STATUS_NORMAL) {
				if (++done == wanted) {
					puts("sent");
					fflush(stdout);
				}
				continue;
			}
			if (status == PGM_IO_STATUS_RATE_LIMITED) {
				wait_for(sock, status, 0);
				continue;
			}
		}
		status = receive(sock, buffer, &size);
		if (status == PGM_IO_STATUS_NORMAL) {
			printf("%zu %016llx\n", size, (unsigned long long)hash(buffer, size));
			fflush(stdout);
			if (!sending && ++done == wanted)
				break;
		} else if (status == PGM_IO_STATUS_RESET) {
			puts("reset");
			fflush(stdout);
		} else if (wait_for(sock, status, 1)) {
			char line[64];
			if (!fgets(line, sizeof line, stdin))
				break;
			started = 1;
		}
	}
	printf("cpu %ld\n", cpu_us() - before_us);
	fflush(stdout);
	pgm_close(sock, TRUE);
	pgm_shutdown();
	return 0;
}
