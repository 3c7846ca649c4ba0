/* SPDX-License-Identifier: MIT */
#ifndef SNT_VQP_RECV_SGES_H
#define SNT_VQP_RECV_SGES_H

#include "vqp/qp.h"

/* Checks a receive's SGEs and fills them in. 0, or as snt_qp_post_recv(). */
int snt__recv_fill_sges(const struct snt_ctx *ctx, uint8_t device, uint32_t sge_max,
			const struct snt_recv_wr *wr, struct ibv_sge *to);

#endif
