/* SPDX-License-Identifier: MIT */
#include <stdlib.h>

#include "plugin.h"

#define EXPORT __attribute__((visibility("default")))
#define NAME   "sennit"

/* NCCL's requests have 32-bit sizes. */
#define MESSAGE_MAX (UINT64_C(1) << 30)
#define COMMS_MAX   65536

/*
 * Properties
 */

static int get_properties_v12(int index, struct nccl_props_v12 *props)
{
	const struct virtual_device *device = process_device(index);

	if (!device)
		return NCCL_INVALID_USAGE;
	*props = (struct nccl_props_v12){
		.name = device->name,
		.pci_path = device->pci_path,
		.guid = device->guid,
		.ptr_support = NCCL_HOST,
		.reg_is_global = 1,
		.speed = device->speed_mbps,
		.port = device->port,
		.max_comms = COMMS_MAX,
		.max_recvs = 1,
		.vdevice = device->parts,
		.max_p2p_bytes = MESSAGE_MAX,
		.max_coll_bytes = MESSAGE_MAX,
		.max_multi_request_size = 1,
		.rail_id = NCCL_ID_UNDEFINED,
		.plane_id = NCCL_ID_UNDEFINED,
	};
	return NCCL_SUCCESS;
}

/* What all versions have. */
#define COPY_PROPERTIES(to, from)                              \
	do {                                                   \
		(to)->name = (from)->name;                     \
		(to)->pci_path = (from)->pci_path;             \
		(to)->guid = (from)->guid;                     \
		(to)->ptr_support = (from)->ptr_support;       \
		(to)->reg_is_global = (from)->reg_is_global;   \
		(to)->speed = (from)->speed;                   \
		(to)->port = (from)->port;                     \
		(to)->latency = (from)->latency;               \
		(to)->max_comms = (from)->max_comms;           \
		(to)->max_recvs = (from)->max_recvs;           \
		(to)->device_type = (from)->device_type;       \
		(to)->device_version = (from)->device_version; \
	} while (0)

static struct nccl_vdevice narrow_vdevice(const struct nccl_vdevice_v12 *wide)
{
	struct nccl_vdevice vdevice = { .count = wide->count };

	for (int i = 0; i < NCCL_VDEVICE_MAX; i++)
		vdevice.device[i] = wide->device[i];
	return vdevice;
}

static int get_properties_v11(int index, struct nccl_props_v11 *props)
{
	struct nccl_props_v12 latest;
	const int ret = get_properties_v12(index, &latest);

	if (ret)
		return ret;
	COPY_PROPERTIES(props, &latest);
	props->force_flush = latest.force_flush;
	props->vdevice = narrow_vdevice(&latest.vdevice);
	props->max_p2p_bytes = latest.max_p2p_bytes;
	props->max_coll_bytes = latest.max_coll_bytes;
	props->max_multi_request_size = latest.max_multi_request_size;
	return NCCL_SUCCESS;
}

static int get_properties_v9(int index, struct nccl_props_v9 *props)
{
	struct nccl_props_v12 latest;
	const int ret = get_properties_v12(index, &latest);

	if (ret)
		return ret;
	COPY_PROPERTIES(props, &latest);
	props->force_flush = latest.force_flush;
	props->vdevice = narrow_vdevice(&latest.vdevice);
	props->max_p2p_bytes = latest.max_p2p_bytes;
	props->max_coll_bytes = latest.max_coll_bytes;
	return NCCL_SUCCESS;
}

static int get_properties_v8(int index, struct nccl_props_v8 *props)
{
	struct nccl_props_v12 latest;
	const int ret = get_properties_v12(index, &latest);

	if (ret)
		return ret;
	COPY_PROPERTIES(props, &latest);
	return NCCL_SUCCESS;
}

/*
 * Init and finalize. Up to v10 there is no finalize: what init has opened stays open.
 */

struct nccl_ctx {
	int traffic_class;
};

static int init_v11(void **ctx_out, uint64_t comm_id, struct nccl_comm_config *config,
		    nccl_log_fn log, void *profiler)
{
	struct nccl_ctx *ctx;
	int ret;

	(void)comm_id;
	(void)profiler;
	ret = process_open(log);
	if (ret)
		return ret;
	ctx = calloc(1, sizeof(*ctx));
	if (!ctx) {
		process_close();
		return plugin_fail(NCCL_SYSTEM_ERROR, "no memory for a context");
	}
	ctx->traffic_class = config ? config->traffic_class : NCCL_ID_UNDEFINED;
	*ctx_out = ctx;
	return NCCL_SUCCESS;
}

static int finalize_v11(void *ctx)
{
	free(ctx);
	process_close();
	return NCCL_SUCCESS;
}

static int init_v10(nccl_log_fn log, void *profiler)
{
	(void)profiler;
	return process_open(log);
}

static int init_v8(nccl_log_fn log)
{
	return process_open(log);
}

static int count_devices(int *count)
{
	*count = process_device_count();
	return NCCL_SUCCESS;
}

static int make_vdevice_v12(int *index, struct nccl_vdevice_v12 *parts)
{
	return process_make_device(parts, index);
}

static int make_vdevice_v9(int *index, struct nccl_vdevice *parts)
{
	struct nccl_vdevice_v12 wide = { .count = parts->count };

	for (int i = 0; i < NCCL_VDEVICE_MAX; i++)
		wide.device[i] = parts->device[i];
	if (parts->count > NCCL_VDEVICE_MAX)
		return plugin_fail(NCCL_INVALID_USAGE, "%d devices cannot be fused",
				   parts->count);
	return process_make_device(&wide, index);
}

/*
 * Connections
 */

static void no_device_handle(void **device_handle)
{
	if (device_handle)
		*device_handle = NULL;
}

static int listen_v11(void *ctx, int device, void *handle, void **listener)
{
	return net_listen(device, ((struct nccl_ctx *)ctx)->traffic_class, handle,
			  listener);
}

static int listen_v8(int device, void *handle, void **listener)
{
	return net_listen(device, NCCL_ID_UNDEFINED, handle, listener);
}

static int connect_v11(void *ctx, int device, void *handle, void **comm,
		       void **device_handle)
{
	no_device_handle(device_handle);
	return net_connect(device, ((struct nccl_ctx *)ctx)->traffic_class, handle,
			   comm);
}

static int connect_v10(int device, struct nccl_comm_config *config, void *handle,
		       void **comm, void **device_handle)
{
	no_device_handle(device_handle);
	return net_connect(device, config ? config->traffic_class : NCCL_ID_UNDEFINED,
			   handle, comm);
}

static int connect_v8(int device, void *handle, void **comm, void **device_handle)
{
	no_device_handle(device_handle);
	return net_connect(device, NCCL_ID_UNDEFINED, handle, comm);
}

static int accept_any(void *listener, void **comm, void **device_handle)
{
	no_device_handle(device_handle);
	return net_accept(listener, comm);
}

static int close_comm(void *comm)
{
	comm_destroy(comm);
	return NCCL_SUCCESS;
}

/*
 * Memory
 */

static int reg_mr(void *comm, void *data, size_t size, int type, void **memory)
{
	(void)comm;
	return memory_register(data, size, type, (struct memory **)memory);
}

static int reg_mr_dmabuf(void *comm, void *data, size_t size, int type, uint64_t offset,
			 int fd, void **memory)
{
	(void)comm;
	(void)type;
	return memory_register_dmabuf(data, size, offset, fd, (struct memory **)memory);
}

static int dereg_mr(void *comm, void *memory)
{
	(void)comm;
	return memory_release(memory);
}

/*
 * Data. Tags choose among the receives of a group; there are no groups (max_recvs).
 */

static int one_receive(int count)
{
	return count == 1 ? NCCL_SUCCESS
			  : plugin_fail(NCCL_INVALID_USAGE,
					"%d receives in a group, and 1 is supported",
					count);
}

static int isend_v10(void *comm, void *data, size_t size, int tag, void *memory,
		     void *profiler, void **request)
{
	(void)tag;
	(void)profiler;
	return net_isend(comm, data, size, memory, request);
}

static int isend_v9(void *comm, void *data, size_t size, int tag, void *memory,
		    void **request)
{
	(void)tag;
	return net_isend(comm, data, size, memory, request);
}

static int isend_v8(void *comm, void *data, int size, int tag, void *memory,
		    void **request)
{
	(void)tag;
	return net_isend(comm, data, size, memory, request);
}

static int irecv_v9(void *comm, int count, void **data, size_t *sizes, int *tags,
		    void **memory, void **request)
{
	(void)tags;
	if (one_receive(count))
		return NCCL_INVALID_USAGE;
	return net_irecv(comm, data[0], sizes[0], memory[0], request);
}

static int irecv_v10(void *comm, int count, void **data, size_t *sizes, int *tags,
		     void **memory, void **profiler, void **request)
{
	(void)profiler;
	return irecv_v9(comm, count, data, sizes, tags, memory, request);
}

static int irecv_v8(void *comm, int count, void **data, int *sizes, int *tags,
		    void **memory, void **request)
{
	size_t size = sizes[0];

	return irecv_v9(comm, count, data, &size, tags, memory, request);
}

/* Host memory needs none; a NULL request counts as done. */
static int flush_nothing(void *comm, int count, void **data, int *sizes, void **memory,
			 void **request)
{
	(void)comm;
	(void)count;
	(void)data;
	(void)sizes;
	(void)memory;
	*request = NULL;
	return NCCL_SUCCESS;
}

/*
 * The tables
 */

#define COMMON_MEMBERS                                                          \
	.name = NAME, .devices = count_devices, .accept = accept_any,           \
	.reg_mr = reg_mr, .reg_mr_dmabuf = reg_mr_dmabuf, .dereg_mr = dereg_mr, \
	.iflush = flush_nothing, .test = net_test, .close_send = close_comm,    \
	.close_recv = close_comm, .close_listen = net_close_listen

EXPORT const struct nccl_net_v8 ncclNetPlugin_v8 = {
	COMMON_MEMBERS,	     .init = init_v8,	    .get_properties = get_properties_v8,
	.listen = listen_v8, .connect = connect_v8, .isend = isend_v8,
	.irecv = irecv_v8,
};

EXPORT const struct nccl_net_v9 ncclNetPlugin_v9 = {
	COMMON_MEMBERS,
	.init = init_v8,
	.get_properties = get_properties_v9,
	.listen = listen_v8,
	.connect = connect_v8,
	.isend = isend_v9,
	.irecv = irecv_v9,
	.make_vdevice = make_vdevice_v9,
};

EXPORT const struct nccl_net_v10 ncclNetPlugin_v10 = {
	COMMON_MEMBERS,
	.init = init_v10,
	.get_properties = get_properties_v9,
	.listen = listen_v8,
	.connect = connect_v10,
	.isend = isend_v10,
	.irecv = irecv_v10,
	.make_vdevice = make_vdevice_v9,
};

EXPORT const struct nccl_net_v11 ncclNetPlugin_v11 = {
	COMMON_MEMBERS,
	.init = init_v11,
	.get_properties = get_properties_v11,
	.listen = listen_v11,
	.connect = connect_v11,
	.isend = isend_v10,
	.irecv = irecv_v10,
	.make_vdevice = make_vdevice_v9,
	.finalize = finalize_v11,
};

EXPORT const struct nccl_net_v12 ncclNetPlugin_v12 = {
	COMMON_MEMBERS,
	.init = init_v11,
	.get_properties = get_properties_v12,
	.listen = listen_v11,
	.connect = connect_v11,
	.isend = isend_v10,
	.irecv = irecv_v10,
	.make_vdevice = make_vdevice_v12,
	.finalize = finalize_v11,
};
