/* SPDX-License-Identifier: MIT */
#ifndef EXAMPLES_ENDS_H
#define EXAMPLES_ENDS_H

#include <stdbool.h>
#include <stdint.h>
#include <sennit/sennit.h>

/*
 * What 06-read.c to 09-multi-rail.c have in common: a server and its clients, connected by
 * address, each with memory that the others may reach. Such an example is run as
 *
 *	NAME serve PORT    on one host
 *	NAME HOST PORT     on the others, as many as it has clients
 *	NAME               all of it on this host, a process for each
 */

#define ENDS_CLIENTS_MAX 8
#define ENDS_SECONDS	 UINT64_C(1000000000)

struct end {
	struct snt_ctx *ctx;
	struct snt_loop *loop;
	struct snt_cq *cq; /* with ops */
	struct snt_mem *mem;
	unsigned char *memory;
	struct snt_conn *conn[ENDS_CLIENTS_MAX]; /* a client has one */
	unsigned conns;
	/* Of a client: */
	struct snt_qp *qp;
	struct snt_token peer; /* the server's memory */
};

struct ends {
	const char *name;
	size_t length;	 /* of each one's memory */
	unsigned access; /* the rights of peers to it */
	unsigned clients;
	struct snt_qp_opts qp; /* but for its CQ */
	/* Before anybody is connected, and when all clients have gone: is all well? */
	void (*prepare)(struct end *server);
	bool (*judge)(struct end *server);
	/* The work; when it returns all is to have arrived. */
	void (*client)(struct end *client);
};

int ends_main(int argc, char **argv, const struct ends *ends);

/* The call failed: says why, and ends the program. */
void ends_check(int ret, const char *what);

/* Waits until the op is over, which must be without an error. */
void ends_await(struct snt_op *op, const char *what);

#endif
