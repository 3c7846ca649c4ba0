/* SPDX-License-Identifier: MIT */
#ifndef SNT_DEV_SOFT_VERBS_H
#define SNT_DEV_SOFT_VERBS_H

#include <infiniband/verbs.h>

/* Inline verbs outside of the data path, as in verbs_context. */
int snt__soft_verbs_query_port(struct ibv_context *context, uint8_t port,
			       struct ibv_port_attr *attr, size_t attr_size);
int snt__soft_verbs_query_device_ex(struct ibv_context *context,
				    const struct ibv_query_device_ex_input *input,
				    struct ibv_device_attr_ex *attr, size_t attr_size);

/* Only of type 2. Those are bound by WRs; the second call is for the others, and always
 * fails. */
struct ibv_mw *snt__soft_verbs_alloc_mw(struct ibv_pd *pd, enum ibv_mw_type type);
int snt__soft_verbs_bind_mw(struct ibv_qp *qp, struct ibv_mw *mw,
			    struct ibv_mw_bind *bind);

#endif
