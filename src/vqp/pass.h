/* SPDX-License-Identifier: MIT */
#ifndef SNT_VQP_PASS_H
#define SNT_VQP_PASS_H

#include <arpa/inet.h>

#include "vqp/qp.h"

/* A single lane as verbs have it: no ring, the program's own wr_id, the device's
 * own rules. Only ranges and rights are checked, as everywhere. */

int snt__pass_post_send(struct snt_qp *qp, const struct snt_send_wr *wr,
			unsigned count);
int snt__pass_post_recv(struct snt_qp *qp, const struct snt_recv_wr *wr,
			unsigned count);

/* The wr_id of what ends a queue; by chance, so that no program uses it too. */
#define SNT__PASS_RECV	4
#define SNT__PASS_CLOSE 2

static inline uint64_t snt__pass_marker(const struct snt_qp *qp, uint32_t queue,
					enum snt__marker marker)
{
	return qp->generation ^ (queue ? SNT__PASS_RECV : 0) ^
	       (marker == SNT__MARKER_CLOSE ? SNT__PASS_CLOSE : 0);
}

/* No use any more. */
void snt__pass_fail(struct snt_qp *qp);

/* Any completion of the lane, and whom it is for. */
enum snt__whose {
	SNT__WHOSE_OURS,    /* the library's own */
	SNT__WHOSE_PROGRAM, /* written to wc */
	SNT__WHOSE_NOBODY,  /* of a WR that was not posted here */
};
enum snt__whose snt__pass_take(struct snt__lane *lane, const struct ibv_wc *physical,
			       struct snt_wc *wc);

/* Verbs' opcodes of completions in our numbers; 0 for those that we do not have. */
#define SNT__PASS_OPCODES (IBV_WC_RECV_RDMA_WITH_IMM + 1)
extern const uint8_t snt__pass_opcode[SNT__PASS_OPCODES];

static inline void snt__pass_translate(const struct ibv_wc *physical, uint32_t qp_num,
				       struct snt_wc *wc)
{
	unsigned opcode = physical->opcode;

	/* Of sends, devices leave the length as it was. */
	*wc = (struct snt_wc){
		.wr_id = physical->wr_id,
		.length = opcode & IBV_WC_RECV ? physical->byte_len : 0,
		.qp_num = qp_num,
		.opcode = opcode < SNT__PASS_OPCODES ? snt__pass_opcode[opcode] : 0,
	};
	if (__builtin_expect(physical->wc_flags & IBV_WC_WITH_IMM, 0)) {
		wc->flags = SNT_WC_WITH_IMM;
		wc->imm = ntohl(physical->imm_data);
	}
}

/* So many signalled sends are done, and with them all before. */
static inline void snt__pass_retire(struct snt__lane *lane, uint32_t signalled)
{
	if (!signalled)
		return;
	lane->run_head += signalled;
	lane->retired = lane->run[(lane->run_head - 1) & lane->run_mask].end;
}

/* Have no more come back than were posted? Forgotten receives may, and what the program
 * posted to a QP of its own by itself. */
static inline bool snt__pass_are_posted(const struct snt__lane *lane, uint32_t receives,
					uint32_t signalled)
{
	return receives <= lane->recv_posted - lane->recv_retired &&
	       signalled <= lane->run_tail - lane->run_head;
}

/* Successes of a lane, one behind the other; how many there were. 0, with nothing done,
 * if the first must be looked at alone. */
static inline int snt__pass_take_run(struct snt__lane *lane,
				     const struct ibv_wc *physical, int count,
				     struct snt_wc *wc)
{
	const uint32_t physical_num = physical->qp_num, qp_num = lane->owner->num;
	uint32_t receives = 0;
	int taken;

	for (taken = 0; taken < count; taken++, physical++, wc++) {
		if (physical->status != IBV_WC_SUCCESS ||
		    physical->qp_num != physical_num)
			break;
		snt__pass_translate(physical, qp_num, wc);
		receives += physical->opcode & IBV_WC_RECV;
	}
	receives /= IBV_WC_RECV;
	if (__builtin_expect(!snt__pass_are_posted(lane, receives, taken - receives),
			     0))
		return 0;
	lane->completions += taken;
	lane->recv_retired += receives;
	snt__pass_retire(lane, taken - receives);
	return taken;
}

#endif
