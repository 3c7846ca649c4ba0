/* SPDX-License-Identifier: MIT */
#ifndef CONN_KIT_H
#define CONN_KIT_H

#include "lib/test.h"

#include <stdbool.h>

#include <sennit/sennit.h>

#include "lib/patience.h"

/*
 * Two contexts on soft devices, each with a loop, in one process and one thread, which
 * connect with each other by address. Whatever fails here fails the test.
 */

#define KIT_BYTES   65536
#define KIT_WAIT_NS patience_ns(60)

/* A loopback address of this process. kit_open() takes others if the last kit was left open by a
 * test that failed; a test that needs addresses before calls kit_leave_failed() first. */
void kit_leave_failed(void);
const char *kit_address(unsigned end, unsigned device);

struct kit_end {
	struct snt_ctx *ctx;
	struct snt_loop *loop;
	struct snt_cq *cq; /* with ops */
	struct snt_mem *mem;
	struct snt_token token;
	struct snt_conn *conn;
	uint8_t *bytes;
	unsigned events[8];  /* how often each has come */
	const char *address; /* of its first device */
};

struct kit {
	struct kit_end end[2]; /* the one that connects, the one that listens */
	struct snt_listener *listener;
	struct snt_endpoint to, at; /* to connect to, to listen at */
	struct snt_conn_opts connect, accept;
	struct snt_listener_opts listen;
	struct snt_qp_opts qp[2];
	bool reject;
	bool may_leave; /* the end that connects, before it is accepted */
	bool second;	/* what is requested from now on is another connection */
	struct snt_conn *extra[2];
	unsigned requests;
};

/* Opens the contexts and fills in the options, for the test to change. */
void kit_open(struct kit *kit, enum snt_carrier carrier, unsigned devices);
/* Listens, and begins to connect. */
void kit_listen(struct kit *kit);
void kit_connect(struct kit *kit);
/* Dispatches at both ends until this is true, or the test fails. */
void kit_until(struct kit *kit, bool (*done)(struct kit *kit));
/* Once, and sleeps a little if there is nothing to do. */
void kit_turn(struct kit *kit);
bool kit_both_up(struct kit *kit);
bool kit_both_over(struct kit *kit);
/* All bytes of one end's memory go to the other. */
void kit_check_data(struct kit *kit, unsigned from);
void kit_disconnect(struct kit *kit);
void kit_destroy_conns(struct kit *kit);
void kit_close(struct kit *kit);
int kit_status(struct kit *kit, unsigned end);
const char *kit_text(struct kit *kit, unsigned end);

#endif
