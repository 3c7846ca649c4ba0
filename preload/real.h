/* SPDX-License-Identifier: MIT */
#ifndef SNT_PRELOAD_REAL_H
#define SNT_PRELOAD_REAL_H

#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>
#include <rdma/rdma_verbs.h>

/* The header has macros of these names. */
#undef ibv_get_device_list
#undef ibv_query_port
#undef ibv_reg_mr
#undef ibv_reg_mr_iova

/* Used by rdma-core's programs; in no header. 0: RoCE v1 or InfiniBand, 1: RoCE v2. */
int ibv_query_gid_type(struct ibv_context *context, uint8_t port, unsigned index,
		       unsigned *type);

/* Of releases after that of the headers, for programs built with those. */
struct ibv_mr_init_attr;
struct ibv_mr *ibv_reg_mr_ex(struct ibv_pd *pd, struct ibv_mr_init_attr *attr);
int ibv_query_port_speed(struct ibv_context *context, uint32_t port,
			 uint64_t *speed_out);

#define SNT__REAL_VERBS(X)             \
	X(_ibv_query_gid_ex)           \
	X(_ibv_query_gid_table)        \
	X(ibv_ack_async_event)         \
	X(ibv_ack_cq_events)           \
	X(ibv_alloc_pd)                \
	X(ibv_attach_mcast)            \
	X(ibv_close_device)            \
	X(ibv_create_ah)               \
	X(ibv_create_ah_from_wc)       \
	X(ibv_create_comp_channel)     \
	X(ibv_create_cq)               \
	X(ibv_create_qp)               \
	X(ibv_create_srq)              \
	X(ibv_dealloc_pd)              \
	X(ibv_dereg_mr)                \
	X(ibv_destroy_ah)              \
	X(ibv_destroy_comp_channel)    \
	X(ibv_destroy_cq)              \
	X(ibv_destroy_qp)              \
	X(ibv_destroy_srq)             \
	X(ibv_detach_mcast)            \
	X(ibv_free_device_list)        \
	X(ibv_get_async_event)         \
	X(ibv_get_cq_event)            \
	X(ibv_get_device_guid)         \
	X(ibv_get_device_index)        \
	X(ibv_get_device_list)         \
	X(ibv_get_device_name)         \
	X(ibv_get_pkey_index)          \
	X(ibv_import_dm)               \
	X(ibv_import_mr)               \
	X(ibv_import_pd)               \
	X(ibv_init_ah_from_wc)         \
	X(ibv_modify_qp)               \
	X(ibv_modify_srq)              \
	X(ibv_open_device)             \
	X(ibv_qp_to_qp_ex)             \
	X(ibv_query_device)            \
	X(ibv_query_ece)               \
	X(ibv_query_gid)               \
	X(ibv_query_gid_type)          \
	X(ibv_query_pkey)              \
	X(ibv_query_port)              \
	X(ibv_query_port_speed)        \
	X(ibv_query_qp)                \
	X(ibv_query_qp_data_in_order)  \
	X(ibv_query_srq)               \
	X(ibv_reg_dmabuf_mr)           \
	X(ibv_reg_mr)                  \
	X(ibv_reg_mr_ex)               \
	X(ibv_reg_mr_iova)             \
	X(ibv_reg_mr_iova2)            \
	X(ibv_rereg_mr)                \
	X(ibv_resize_cq)               \
	X(ibv_resolve_eth_l2_from_gid) \
	X(ibv_set_ece)

#define SNT__REAL_CM(X)               \
	X(rdma_accept)                \
	X(rdma_ack_cm_event)          \
	X(rdma_bind_addr)             \
	X(rdma_connect)               \
	X(rdma_create_ep)             \
	X(rdma_create_event_channel)  \
	X(rdma_create_id)             \
	X(rdma_create_qp)             \
	X(rdma_create_qp_ex)          \
	X(rdma_create_srq)            \
	X(rdma_create_srq_ex)         \
	X(rdma_destroy_ep)            \
	X(rdma_destroy_event_channel) \
	X(rdma_destroy_id)            \
	X(rdma_destroy_qp)            \
	X(rdma_destroy_srq)           \
	X(rdma_disconnect)            \
	X(rdma_establish)             \
	X(rdma_free_devices)          \
	X(rdma_get_cm_event)          \
	X(rdma_get_devices)           \
	X(rdma_get_dst_port)          \
	X(rdma_get_remote_ece)        \
	X(rdma_get_request)           \
	X(rdma_get_src_port)          \
	X(rdma_freeaddrinfo)          \
	X(rdma_getaddrinfo)           \
	X(rdma_init_qp_attr)          \
	X(rdma_join_multicast)        \
	X(rdma_join_multicast_ex)     \
	X(rdma_leave_multicast)       \
	X(rdma_listen)                \
	X(rdma_migrate_id)            \
	X(rdma_notify)                \
	X(rdma_reject)                \
	X(rdma_reject_ece)            \
	X(rdma_resolve_addr)          \
	X(rdma_resolve_route)         \
	X(rdma_set_local_ece)         \
	X(rdma_set_option)

struct snt__real {
#define X(name) __typeof__ (&name)(name);
	SNT__REAL_VERBS(X)
	SNT__REAL_CM(X)
#undef X
};

/* Functions of libraries that are missing, or too old to have them, are NULL. A program
 * that needs such a function would not have started without this library. */
const struct snt__real *snt__real(void);

#endif
