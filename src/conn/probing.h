/* SPDX-License-Identifier: MIT */
#ifndef SNT_CONN_PROBING_H
#define SNT_CONN_PROBING_H

#include <sennit/qp.h>

#include "conn/conn_loop.h"
#include "conn/message.h"

/*
 * Trials of pairs of devices: a QP of one lane for each, on which both ends send three
 * messages, a short one, one as long as the MTU, and an empty one. They are created and
 * connected as lanes are, so that what works for them works for lanes. The end that
 * accepts sends after it has received something, since before that it cannot know that
 * the other end is ready.
 */
struct snt__probing;
struct snt_conn;

/* May another begin, or are there so many that it must wait for
 * snt__conn_may_probe()? */
bool snt__probing_may_begin(const struct snt__conn_loop *conn_loop, bool connects);

/*
 * Creates QPs for the pairs in probe->probe_qp[]. Their numbers, or why there are none,
 * are written to @out. @like: traffic class and the like, and the timeout.
 */
int snt__probing_begin(struct snt__conn_loop *conn_loop, struct snt_conn *conn,
		       bool connects, const struct snt_qp_opts *like,
		       const struct snt__probe *probe, struct snt__probe_qp *out,
		       struct snt__probing **probing_out);

/* Connects them with the peer's. Verdicts follow, by snt__conn_probed(), at the latest
 * after @patience_ns. */
int snt__probing_connect(struct snt__probing *probing, const struct snt__offer *peer,
			 const struct snt__probe *peer_probe, uint64_t patience_ns);

/*
 * The trials are over. The QPs in @keep stay, to ask the peer's device whether it is
 * there, for carriers that cannot (carrier.h); the rest ends.
 */
void snt__probing_keep(struct snt__probing *probing, const bool *keep,
		       uint64_t detect_ns);

/* Pings on each QP that has no ping in flight. If none of the devices has answered
 * within five eighths of the detection time, snt__conn_silent() follows. */
void snt__probing_ping(struct snt__probing *probing);

/* Ends them; they free themselves. NULL is allowed. */
void snt__probing_close(struct snt__probing *probing);

/* conn_step.c: the first connection of the list gets its turn. */
void snt__conn_may_probe(struct snt__link *waiting);

/* conn_step.c: none of the peer's devices answers. */
void snt__conn_silent(struct snt_conn *conn);

/* conn_step.c */
void snt__conn_probed(struct snt_conn *conn, const uint8_t *verdict);

#endif
