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

#endif
