/* SPDX-License-Identifier: MIT */
#include "lib/loopback.h"

#include <assert.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define BLOCKS	  (1u << 16)
#define TRIES	  1000
#define WIRE_PORT 4791

static unsigned block;
static pid_t claimed_by;

void loopback_in_block(unsigned of, unsigned number, uint8_t address_out[4])
{
	assert(of < BLOCKS && number < LOOPBACK_ADDRESSES);
	address_out[0] = 127;
	address_out[1] = (uint8_t)(64 + (of >> 10));
	address_out[2] = (uint8_t)(of >> 2);
	address_out[3] = (uint8_t)((of & 3) * LOOPBACK_ADDRESSES + number);
}

/* Abstract names belong to the network namespace, as addresses do, and go with the process. */
static bool claim_name(unsigned of, int *fd_out)
{
	struct sockaddr_un name = { .sun_family = AF_UNIX };
	int length = snprintf(name.sun_path + 1, sizeof(name.sun_path) - 1,
			      "sennit-test-loopback-%u", of);
	socklen_t size = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 +
				     (size_t)length);

	*fd_out = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (*fd_out >= 0 && !bind(*fd_out, (struct sockaddr *)&name, size))
		return true;
	if (*fd_out >= 0)
		close(*fd_out);
	return false;
}

static bool is_free(unsigned of, unsigned number)
{
	struct sockaddr_in at = { .sin_family = AF_INET, .sin_port = htons(WIRE_PORT) };
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	bool free;

	loopback_in_block(of, number, (uint8_t *)&at.sin_addr);
	free = fd >= 0 && !bind(fd, (struct sockaddr *)&at, sizeof(at));
	if (fd >= 0)
		close(fd);
	return free;
}

static bool claim_network(unsigned of)
{
	int fd;

	if (!claim_name(of, &fd))
		return false;
	for (unsigned i = 0; i < LOOPBACK_ADDRESSES; i++)
		if (!is_free(of, i)) {
			close(fd);
			return false;
		}
	return true;
}

unsigned loopback_claim(unsigned first)
{
	for (unsigned i = 0; i < TRIES; i++)
		if (claim_network((first + i) % BLOCKS))
			return (first + i) % BLOCKS;
	fprintf(stderr,
		"no %u loopback addresses have UDP port %u free; "
		"is the kernel module rdma_rxe loaded?\n",
		LOOPBACK_ADDRESSES, WIRE_PORT);
	exit(1);
}

/* At the start, so that no test sees an fd more than before. */
__attribute__((constructor)) static void claim_own(void)
{
	if (claimed_by == getpid())
		return;
	claimed_by = getpid();
	block = loopback_claim((unsigned)claimed_by % BLOCKS);
}

void loopback_move(void)
{
	claim_own();
	block = loopback_claim((block + 1) % BLOCKS);
}

void loopback_address(unsigned number, uint8_t address_out[4])
{
	claim_own();
	loopback_in_block(block, number, address_out);
}

const char *loopback_text(unsigned number)
{
	static char text[LOOPBACK_ADDRESSES][16];
	uint8_t address[4];

	loopback_address(number, address);
	snprintf(text[number], sizeof(text[number]), "%u.%u.%u.%u", address[0],
		 address[1], address[2], address[3]);
	return text[number];
}
