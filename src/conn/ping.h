/* SPDX-License-Identifier: MIT */
#ifndef SNT_CONN_PING_H
#define SNT_CONN_PING_H

#include <sennit/op.h>

#include "conn/hub.h"

/*
 * Asks the peer's device whether it is there, by a write of nothing to nowhere, which it
 * answers without its program. An answer is waited for for five eighths of the detection time,
 * in ticks of one eighth. Each tick takes the completions that have come before it counts, and
 * counts once however late it is: while this process was stopped, waited for a processor or
 * did not dispatch, answers may have come that nothing here has looked at yet.
 */

enum snt__ping_state {
	SNT__PING_IDLE = 0,
	SNT__PING_ASKED,
	SNT__PING_GIVEN_UP, /* or stopped; the write has yet to end */
};

struct snt__ping {
	/* The write has ended: once for each that was sent. Not 0: the device gave up. */
	void (*ended)(struct snt__ping *ping, int result);
	/* No answer has come in time; ended() follows when the QP is closed. */
	void (*silent)(struct snt__ping *ping);
	struct snt__hub *hub;
	struct snt_op op;
	struct snt_timer timer;
	uint64_t tick_ns;
	unsigned ticks_left;
	enum snt__ping_state state;
};

/* Of a ping that is IDLE, on a QP that reports to the hub's CQ. Returns 0 or a negative errno,
 * and then no function follows. */
int snt__ping_send(struct snt__ping *ping, struct snt__hub *hub, struct snt_qp *qp,
		   uint64_t detect_ns);

/* silent() does not follow any more. */
void snt__ping_stop(struct snt__ping *ping);

#endif
