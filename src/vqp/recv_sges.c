/* SPDX-License-Identifier: MIT */
#include "vqp/recv_sges.h"

#include "vqp/check.h"

int snt__recv_fill_sges(const struct snt_ctx *ctx, uint8_t device, uint32_t sge_max,
			const struct snt_recv_wr *wr, struct ibv_sge *to)
{
	if (wr->sge_count > sge_max)
		return snt__recv_count_fault(wr->sge_count, sge_max);
	for (unsigned i = 0; i < wr->sge_count; i++) {
		const struct snt_sge *from = &wr->sge[i];
		int ret = snt__check_recv_sge(ctx, from);

		if (ret)
			return ret;
		to[i].addr = (uintptr_t)from->addr;
		to[i].length = from->length;
		to[i].lkey = from->mem->local_key[device];
	}
	return 0;
}
