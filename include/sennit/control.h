/* SPDX-License-Identifier: MIT */
#ifndef SENNIT_CONTROL_H
#define SENNIT_CONTROL_H

#include <stddef.h>
#include <stdint.h>
#include <sennit/api.h>

/*
 * The control table: the operations of a device outside the data path.
 *
 * Sennit posts and polls through the inline verbs, which call whatever
 * functions are in `ibv_context::ops`. Everything else goes through one of these
 * tables, so that libibverbs' exported functions never see an object that libibverbs
 * did not create. Programs need the table in two cases: to adopt a device of their own
 * (ctx.h), or to create plain QPs on a device that sennit opened (snt_device_control()
 * in device.h).
 *
 * What an adopted device needs:
 *
 *	to be in a context		query_device, query_port, query_gid
 *	memory				reg_mr, dereg_mr; reg_dmabuf_mr for dma-buf
 *	CQs				create_cq, destroy_cq
 *	CQs with events or ops		create_channel, destroy_channel, get_cq_event,
 *					ack_cq_events
 *	QPs				create_qp, modify_qp, destroy_qp
 *	QPs that are adopted		modify_qp to connect, close and reset them;
 *					query_qp to check how deep they are
 *	shared receive queues		create_srq, destroy_srq; modify_srq for limits
 *	memory windows			alloc_mw, dealloc_mw
 *	device events			get_async_event, ack_async_event
 *
 * An adopted device never needs query_numa_node, alloc_pd, dealloc_pd and query_srq,
 * because it comes with its PD. Without a table (snt_adopted.control is NULL) CQs and
 * QPs must be adopted as well, and the program changes the states of the QPs itself:
 * see snt_qp_connect_adopted() in card.h.
 *
 * All functions return 0 or a negative errno and write their out pointer only
 * on success, unlike verbs, which have four conventions. A NULL member means that the
 * device does not support the operation; a call that needs it fails with -EOPNOTSUPP
 * and a text that names the device. `size` is sizeof(struct snt_control) as the table's
 * author saw it: members beyond it count as NULL, and members that this library does
 * not know are ignored.
 *
 * Threads that share a context call these functions at the same time, and the library
 * takes no lock around them: as in verbs, all of them must be thread-safe.
 */

struct ibv_async_event;
struct ibv_comp_channel;
struct ibv_context;
struct ibv_cq;
struct ibv_device_attr;
struct ibv_gid_entry;
struct ibv_mr;
struct ibv_mw;
struct ibv_pd;
struct ibv_port_attr;
struct ibv_qp;
struct ibv_qp_attr;
struct ibv_qp_init_attr;
struct ibv_srq;
struct ibv_srq_attr;
struct ibv_srq_init_attr;
struct snt__cm_table;

#ifdef __cplusplus
extern "C" {
#endif

struct snt_control {
	size_t size;

	/* What the device is. query_gid is -ENODATA for an empty table slot. */
	int (*query_device)(struct ibv_context *context,
			    struct ibv_device_attr *attr_out);
	int (*query_port)(struct ibv_context *context, uint8_t port,
			  struct ibv_port_attr *attr_out);
	int (*query_gid)(struct ibv_context *context, uint8_t port, uint32_t index,
			 struct ibv_gid_entry *entry_out);
	/* Writes -1 where the device belongs to no particular node. */
	int (*query_numa_node)(struct ibv_context *context, int *node_out);

	/* Protection domains and memory. */
	int (*alloc_pd)(struct ibv_context *context, struct ibv_pd **pd_out);
	int (*dealloc_pd)(struct ibv_pd *pd);
	int (*reg_mr)(struct ibv_pd *pd, void *addr, size_t length, unsigned access,
		      struct ibv_mr **mr_out);
	int (*reg_dmabuf_mr)(struct ibv_pd *pd, int fd, uint64_t offset, size_t length,
			     uint64_t iova, unsigned access, struct ibv_mr **mr_out);
	int (*dereg_mr)(struct ibv_mr *mr);

	/* Completion queues and their channels. get_cq_event is -EAGAIN when the
	 * channel's fd is non-blocking and no event waits. */
	int (*create_channel)(struct ibv_context *context,
			      struct ibv_comp_channel **channel_out);
	int (*destroy_channel)(struct ibv_comp_channel *channel);
	int (*create_cq)(struct ibv_context *context, int cqe, void *cq_context,
			 struct ibv_comp_channel *channel, int vector,
			 struct ibv_cq **cq_out);
	int (*destroy_cq)(struct ibv_cq *cq);
	int (*get_cq_event)(struct ibv_comp_channel *channel, struct ibv_cq **cq_out,
			    void **cq_context_out);
	void (*ack_cq_events)(struct ibv_cq *cq, unsigned count);

	/* Queue pairs and shared receive queues. create_* write the granted
	 * capacities back into their init attributes, as verbs do. */
	int (*create_qp)(struct ibv_pd *pd, struct ibv_qp_init_attr *attr,
			 struct ibv_qp **qp_out);
	int (*modify_qp)(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask);
	int (*query_qp)(struct ibv_qp *qp, struct ibv_qp_attr *attr_out, int mask,
			struct ibv_qp_init_attr *init_attr_out);
	int (*destroy_qp)(struct ibv_qp *qp);
	int (*create_srq)(struct ibv_pd *pd, struct ibv_srq_init_attr *attr,
			  struct ibv_srq **srq_out);
	int (*modify_srq)(struct ibv_srq *srq, struct ibv_srq_attr *attr, int mask);
	int (*query_srq)(struct ibv_srq *srq, struct ibv_srq_attr *attr_out);
	int (*destroy_srq)(struct ibv_srq *srq);

	/* Device events; their fd is ibv_context::async_fd. While an event has been
	 * taken and not acknowledged, destroying the object it is about fails with
	 * -EBUSY on the library's own devices; libibverbs waits. The same holds for the
	 * events of a CQ. */
	int (*get_async_event)(struct ibv_context *context,
			       struct ibv_async_event *event_out);
	void (*ack_async_event)(struct ibv_async_event *event);

	/* How connections by address are made. Only the library's own tables have it;
	 * programs leave it NULL. */
	const struct snt__cm_table *cm;

	/* Memory windows, of type 2. */
	int (*alloc_mw)(struct ibv_pd *pd, struct ibv_mw **mw_out);
	int (*dealloc_mw)(struct ibv_mw *mw);
};

/**
 * snt_control_verbs - get the table that calls libibverbs
 *
 * For programs that adopt an `ibv_context` which came from ibv_open_device().
 *
 * Ownership: static data of the library.
 * Thread: any.
 * Returns: the table, never NULL.
 */
SNT_API const struct snt_control *snt_control_verbs(void);

#ifdef __cplusplus
}
#endif

#endif
