/* SPDX-License-Identifier: MIT */
#ifndef SNT_DEV_SOFT_DATAGRAM_H
#define SNT_DEV_SOFT_DATAGRAM_H

#include "dev/soft/qp.h"

/* UD has only SEND, of one packet, to an address that is part of each WR. */

struct snt__soft_ah {
	struct ibv_ah ibv;
	struct snt__soft_path path;
};

/* Keeps the address of the WR at that position. */
void snt__soft_datagram_address(struct snt__soft_qp *qp, uint32_t position,
				const struct ibv_send_wr *wr);

#endif
