/* SPDX-License-Identifier: MIT */
#ifndef SENNIT_TESTS_UDP_SIDE_H
#define SENNIT_TESTS_UDP_SIDE_H

#include "lib/test.h"

#include "dev/soft/udp/device.h"

/*
 * Soft devices in one process, each on a loopback address of its own that no other test
 * has, and an RC QP on each. Whatever fails here fails the test.
 */

#define SIDE_BYTES (1u << 20)
#define SIDE_DEPTH 64
#define SIDE_ACCESS                                                                  \
	(IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | \
	 IBV_ACCESS_REMOTE_ATOMIC)

struct side {
	struct snt__udp_device *device;
	const struct snt_control *control;
	struct ibv_context *context;
	struct ibv_pd *pd;
	struct ibv_comp_channel *channel;
	struct ibv_cq *cq;
	struct ibv_mr *mr;
	struct ibv_qp *qp;
	uint8_t *bytes;
};

/* The timeout of QPs, as verbs have it: 4 seconds, so that nothing is sent twice only
 * because the machine is busy. Tests that lose packets have less, two seconds until a
 * peer is given up; and where no peer is to be found, it need not take so long. */
#define SIDE_PATIENT   20
#define SIDE_LOSSY     14
#define SIDE_IMPATIENT 12
extern uint8_t side_timeout;

/* For set-ups: if a test has failed and left sides open, those to come have other
 * addresses, so that one failure is one. */
void sides_leave_failed(void);

/* An address of this process, from lib/loopback.h. */
struct snt__udp_address side_address(unsigned number);

/* opts may be NULL; its name and address are filled in. */
void side_open(struct side *side, unsigned number, const struct snt__udp_opts *opts);
void side_make_qp(struct side *side);
void side_connect(struct side *side, const struct side *to, enum ibv_mtu mtu);
void side_close(struct side *side);

/* Two of them, connected with each other. */
void sides_open(struct side side[2], const struct snt__udp_opts *opts);
void sides_close(struct side side[2]);

void side_post(struct side *side, const struct side *to, enum ibv_wr_opcode opcode,
	       uint32_t length);
/* Waits for a completion and returns its status. */
enum ibv_wc_status side_wait(struct side *side);
/* The same by an event, for which the CQ has been armed. */
enum ibv_wc_status side_wait_event(struct side *side);
/* A WRITE of that many bytes, which are then there. */
void side_check(struct side *side, struct side *to, uint32_t length);

/* What the core has counted, and what its sender has. */
struct snt__soft_stats side_stats(struct side *side);
struct snt__udp_send_stats side_sent(const struct side *side);

/* Does its thread leave the socket to others? */
bool side_naps(struct side *side);
/* Its thread stops, as if it napped all the time, and no send counts as long; and
 * starts again. */
void side_put_to_sleep(struct side *side);
void side_wake_up(struct side *side);
/* The second side takes in a request by polling, and has not acknowledged it yet. */
void side_take_request(struct side side[2]);
/* The process takes nothing at all, for a whole second. When that is depends on what
 * else wants a processor. */
void sides_idle(void);

#endif
