/* SPDX-License-Identifier: MIT */
#ifndef SNT_CONN_PING_H
#define SNT_CONN_PING_H

#include <sennit/op.h>

#include "conn/conn_loop.h"

/*
 * Asks the peer's device whether it is there, by an empty write without a target, which
 * the device acknowledges without its program. The timeout is five eighths of the
 * detection time, in ticks of one eighth. Each tick takes the completions that have
 * arrived before it counts, and counts once however late it is: while this process was
 * stopped, waited for a processor or did not dispatch, acknowledgments may have arrived
 * that were not processed yet.
 */

enum snt__ping_state {
	SNT__PING_IDLE = 0,
	SNT__PING_ASKED,
	SNT__PING_GIVEN_UP, /* or stopped; the write has not completed */
};

struct snt__ping {
	/* The write has completed: once for each that was sent. Not 0: the device gave
	 * up. */
	void (*ended)(struct snt__ping *ping, int result);
	/* No acknowledgment in time; ended() follows when the QP is closed. */
	void (*silent)(struct snt__ping *ping);
	struct snt__conn_loop *conn_loop;
	struct snt_op op;
	struct snt_timer timer;
	uint64_t tick_ns;
	unsigned ticks_left;
	enum snt__ping_state state;
};

/* For an IDLE ping, on a QP that reports to the conn_loop's CQ. Returns 0 or a negative
 * errno, and then no callback follows. */
int snt__ping_send(struct snt__ping *ping, struct snt__conn_loop *conn_loop,
		   struct snt_qp *qp, uint64_t detect_ns);

/* silent() does not follow any more. */
void snt__ping_stop(struct snt__ping *ping);

#endif
