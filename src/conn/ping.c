/* SPDX-License-Identifier: MIT */
#include "conn/ping.h"

#define TICKS	     5
#define TICKS_IN_ALL 8 /* of the detection time */

static void on_ping_answered(struct snt_op *op)
{
	struct snt__ping *ping = op->arg;

	snt_timer_stop(&ping->timer);
	ping->state = SNT__PING_IDLE;
	ping->ended(ping, op->result);
}

static void on_ping_timer(struct snt_timer *timer)
{
	struct snt__ping *ping = timer->arg;

	snt__conn_loop_take(ping->conn_loop);
	/* It was answered or stopped, and perhaps sent again. */
	if (ping->state != SNT__PING_ASKED || timer->loop)
		return;
	if (--ping->ticks_left) {
		snt_timer_start(ping->conn_loop->loop, timer, ping->tick_ns);
		return;
	}
	ping->state = SNT__PING_GIVEN_UP;
	ping->silent(ping);
}

int snt__ping_send(struct snt__ping *ping, struct snt__conn_loop *conn_loop,
		   struct snt_qp *qp, uint64_t detect_ns)
{
	static const struct snt_token nowhere = { .length = 1,
						  .access = SNT_ACCESS_REMOTE_WRITE,
						  .key_count = 1 };
	int ret;

	ping->conn_loop = conn_loop;
	ping->op.done = on_ping_answered;
	ping->op.arg = ping;
	ret = snt_op_write(qp, &ping->op, NULL, &nowhere, 0);
	if (ret)
		return ret;
	ping->state = SNT__PING_ASKED;
	ping->ticks_left = TICKS;
	ping->tick_ns = detect_ns / TICKS_IN_ALL;
	ping->timer.fired = on_ping_timer;
	ping->timer.arg = ping;
	snt_timer_start(conn_loop->loop, &ping->timer, ping->tick_ns);
	return 0;
}

void snt__ping_stop(struct snt__ping *ping)
{
	snt_timer_stop(&ping->timer);
	if (ping->state == SNT__PING_ASKED)
		ping->state = SNT__PING_GIVEN_UP;
}
