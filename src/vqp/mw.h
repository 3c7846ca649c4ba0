/* SPDX-License-Identifier: MIT */
#ifndef SNT_VQP_MW_H
#define SNT_VQP_MW_H

#include <sennit/mw.h>

/* The public calls, for ops as well. */
int snt__mw_bind(struct snt_qp *qp, struct snt_mw *mw, const struct snt_sge *range,
		 unsigned access, uint64_t wr_id, unsigned flags);
int snt__mw_invalidate(struct snt_qp *qp, struct snt_mw *mw, uint64_t wr_id,
		       unsigned flags);
int snt__mw_send_inv(struct snt_qp *qp, const struct snt_sge *sge, unsigned sge_count,
		     const struct snt_token *window, uint64_t wr_id, unsigned flags);

#endif
