/* SPDX-License-Identifier: MIT */
#include "vqp/slot.h"

uint32_t snt__slot_cut(struct snt_qp *qp, uint32_t position, uint8_t device,
		       uint64_t length, struct ibv_sge *to)
{
	uint32_t at = position & qp->mask, count = 0;
	struct snt__sges *state = &qp->sges[at];
	const struct snt_sge *from = &qp->sge[at * qp->send_sge_max];

	while (length) {
		const struct snt_sge *sge = &from[state->current];
		uint64_t part = sge->length - state->offset;

		if (part > length)
			part = length;
		if (part)
			snt__build_sge(&to[count++],
				       (uintptr_t)sge->addr + state->offset, part,
				       sge->mem->local_key[device]);
		state->offset += part;
		length -= part;
		if (state->offset == sge->length) {
			state->current++;
			state->offset = 0;
		}
	}
	return count;
}
