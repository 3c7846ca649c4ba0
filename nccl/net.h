/* SPDX-License-Identifier: MIT */
#ifndef SNT_NCCL_NET_H
#define SNT_NCCL_NET_H

#include <stddef.h>
#include <stdint.h>

/*
 * The interface between NCCL and a network plugin, in declarations of our own: neither NCCL
 * nor CUDA is needed to build this folder. NCCL looks for the data objects ncclNetPlugin_v12,
 * _v11, _v10, ... and uses the first that it finds; a version never changes.
 *
 *	NCCL 2.20 - 2.23	v8
 *	NCCL 2.24 - 2.25	v9
 *	NCCL 2.26 - 2.27	v10
 *	NCCL 2.28 - 2.29	v11
 *	NCCL 2.30		v12
 */

enum nccl_result {
	NCCL_SUCCESS = 0,
	NCCL_SYSTEM_ERROR = 2,
	NCCL_INTERNAL_ERROR = 3,
	NCCL_INVALID_USAGE = 5,
	NCCL_REMOTE_ERROR = 6,
};

enum nccl_log_level {
	NCCL_WARN = 2,
	NCCL_INFO = 3,
};

/* Bits for the logger's `flags`. */
enum nccl_subsystem {
	NCCL_SUBSYSTEM_INIT = 0x1,
	NCCL_SUBSYSTEM_NET = 0x10,
};

enum nccl_memory_type {
	NCCL_HOST = 0x1,
	NCCL_CUDA = 0x2,
	NCCL_DMABUF = 0x4,
};

#define NCCL_HANDLE_BYTES 128
/* NCCL has at most this many requests of a connection in flight. */
#define NCCL_REQUESTS_MAX 32
#define NCCL_ID_UNDEFINED (-1)
/* Stands in *request where irecv() may report completion before the data is there. */
#define NCCL_OPTIONAL_COMPLETION ((void *)1)

typedef void (*nccl_log_fn)(enum nccl_log_level level, unsigned long flags,
			    const char *file, int line, const char *format, ...)
	__attribute__((format(printf, 5, 6)));

struct nccl_comm_config {
	int traffic_class; /* NCCL_ID_UNDEFINED: not set */
};

struct nccl_props_v8 {
	const char *name;
	const char *pci_path;
	uint64_t guid;
	int ptr_support; /* enum nccl_memory_type */
	int reg_is_global;
	int speed; /* 10^6 bit/s */
	int port;
	float latency;
	int max_comms;
	int max_recvs;
	int device_type;
	int device_version;
};

#define NCCL_VDEVICE_MAX     4
#define NCCL_VDEVICE_MAX_V12 8

struct nccl_vdevice {
	int count;
	int device[NCCL_VDEVICE_MAX];
};

struct nccl_vdevice_v12 {
	int count;
	int device[NCCL_VDEVICE_MAX_V12];
};

/* v9 and v10 */
struct nccl_props_v9 {
	const char *name;
	const char *pci_path;
	uint64_t guid;
	int ptr_support;
	int reg_is_global;
	int force_flush;
	int speed;
	int port;
	float latency;
	int max_comms;
	int max_recvs;
	int device_type;
	int device_version;
	struct nccl_vdevice vdevice;
	size_t max_p2p_bytes;
	size_t max_coll_bytes;
};

struct nccl_props_v11 {
	const char *name;
	const char *pci_path;
	uint64_t guid;
	int ptr_support;
	int reg_is_global;
	int force_flush;
	int speed;
	int port;
	float latency;
	int max_comms;
	int max_recvs;
	int device_type;
	int device_version;
	struct nccl_vdevice vdevice;
	size_t max_p2p_bytes;
	size_t max_coll_bytes;
	int max_multi_request_size;
};

struct nccl_props_v12 {
	const char *name;
	const char *pci_path;
	uint64_t guid;
	int ptr_support;
	int reg_is_global;
	int force_flush;
	int speed;
	int port;
	float latency;
	int max_comms;
	int max_recvs;
	int device_type;
	int device_version;
	struct nccl_vdevice_v12 vdevice;
	size_t max_p2p_bytes;
	size_t max_coll_bytes;
	int max_multi_request_size;
	int16_t rail_id;
	int16_t plane_id;
};

/* What all versions have alike, in this order, at the places that the members say. */
#define NCCL_NET_SETUP_CALLS                                                         \
	int (*accept)(void *listener, void **recv_comm, void **device_handle);       \
	int (*reg_mr)(void *comm, void *data, size_t size, int type, void **memory); \
	int (*reg_mr_dmabuf)(void *comm, void *data, size_t size, int type,          \
			     uint64_t offset, int fd, void **memory);                \
	int (*dereg_mr)(void *comm, void *memory)

#define NCCL_NET_DATA_CALLS                                                   \
	int (*iflush)(void *recv_comm, int count, void **data, int *sizes,    \
		      void **memory, void **request);                         \
	int (*test)(void *request, int *done, int *sizes);                    \
	int (*close_send)(void *send_comm);                                   \
	int (*close_recv)(void *recv_comm);                                   \
	int (*close_listen)(void *listener);                                  \
	int (*get_device_mr)(void *comm, void *memory, void **device_memory); \
	int (*irecv_consumed)(void *recv_comm, int count, void *request)

struct nccl_net_v8 {
	const char *name;
	int (*init)(nccl_log_fn log);
	int (*devices)(int *count);
	int (*get_properties)(int device, struct nccl_props_v8 *props);
	int (*listen)(int device, void *handle, void **listener);
	int (*connect)(int device, void *handle, void **send_comm,
		       void **device_handle);
	NCCL_NET_SETUP_CALLS;
	int (*isend)(void *send_comm, void *data, int size, int tag, void *memory,
		     void **request);
	int (*irecv)(void *recv_comm, int count, void **data, int *sizes, int *tags,
		     void **memory, void **request);
	NCCL_NET_DATA_CALLS;
};

struct nccl_net_v9 {
	const char *name;
	int (*init)(nccl_log_fn log);
	int (*devices)(int *count);
	int (*get_properties)(int device, struct nccl_props_v9 *props);
	int (*listen)(int device, void *handle, void **listener);
	int (*connect)(int device, void *handle, void **send_comm,
		       void **device_handle);
	NCCL_NET_SETUP_CALLS;
	int (*isend)(void *send_comm, void *data, size_t size, int tag, void *memory,
		     void **request);
	int (*irecv)(void *recv_comm, int count, void **data, size_t *sizes, int *tags,
		     void **memory, void **request);
	NCCL_NET_DATA_CALLS;
	int (*make_vdevice)(int *device, struct nccl_vdevice *vdevice);
};

struct nccl_net_v10 {
	const char *name;
	int (*init)(nccl_log_fn log, void *profiler);
	int (*devices)(int *count);
	int (*get_properties)(int device, struct nccl_props_v9 *props);
	int (*listen)(int device, void *handle, void **listener);
	int (*connect)(int device, struct nccl_comm_config *config, void *handle,
		       void **send_comm, void **device_handle);
	NCCL_NET_SETUP_CALLS;
	int (*isend)(void *send_comm, void *data, size_t size, int tag, void *memory,
		     void *profiler, void **request);
	int (*irecv)(void *recv_comm, int count, void **data, size_t *sizes, int *tags,
		     void **memory, void **profiler, void **request);
	NCCL_NET_DATA_CALLS;
	int (*make_vdevice)(int *device, struct nccl_vdevice *vdevice);
};

/* From v11 on, init() is called once for each NCCL communicator, and so is finalize(). */
struct nccl_net_v11 {
	const char *name;
	int (*init)(void **ctx, uint64_t comm_id, struct nccl_comm_config *config,
		    nccl_log_fn log, void *profiler);
	int (*devices)(int *count);
	int (*get_properties)(int device, struct nccl_props_v11 *props);
	int (*listen)(void *ctx, int device, void *handle, void **listener);
	int (*connect)(void *ctx, int device, void *handle, void **send_comm,
		       void **device_handle);
	NCCL_NET_SETUP_CALLS;
	int (*isend)(void *send_comm, void *data, size_t size, int tag, void *memory,
		     void *profiler, void **request);
	int (*irecv)(void *recv_comm, int count, void **data, size_t *sizes, int *tags,
		     void **memory, void **profiler, void **request);
	NCCL_NET_DATA_CALLS;
	int (*make_vdevice)(int *device, struct nccl_vdevice *vdevice);
	int (*finalize)(void *ctx);
	int (*set_net_attr)(void *ctx, void *attributes);
};

struct nccl_net_v12 {
	const char *name;
	int (*init)(void **ctx, uint64_t comm_id, struct nccl_comm_config *config,
		    nccl_log_fn log, void *profiler);
	int (*devices)(int *count);
	int (*get_properties)(int device, struct nccl_props_v12 *props);
	int (*listen)(void *ctx, int device, void *handle, void **listener);
	int (*connect)(void *ctx, int device, void *handle, void **send_comm,
		       void **device_handle);
	NCCL_NET_SETUP_CALLS;
	int (*isend)(void *send_comm, void *data, size_t size, int tag, void *memory,
		     void *profiler, void **request);
	int (*irecv)(void *recv_comm, int count, void **data, size_t *sizes, int *tags,
		     void **memory, void **profiler, void **request);
	NCCL_NET_DATA_CALLS;
	int (*make_vdevice)(int *device, struct nccl_vdevice_v12 *vdevice);
	int (*finalize)(void *ctx);
	int (*set_net_attr)(void *ctx, void *attributes);
};

extern const struct nccl_net_v8 ncclNetPlugin_v8;
extern const struct nccl_net_v9 ncclNetPlugin_v9;
extern const struct nccl_net_v10 ncclNetPlugin_v10;
extern const struct nccl_net_v11 ncclNetPlugin_v11;
extern const struct nccl_net_v12 ncclNetPlugin_v12;

/* Places in NCCL's structures, on 64-bit machines. */
#define NCCL_AT(type, member, place)                             \
	_Static_assert(offsetof(struct type, member) == (place), \
		       "NCCL has " #member " at another place of " #type)

#ifdef __LP64__
NCCL_AT(nccl_props_v8, speed, 32);
NCCL_AT(nccl_props_v8, device_version, 56);
_Static_assert(sizeof(struct nccl_props_v8) == 64, "size of NCCL's properties v8");
NCCL_AT(nccl_props_v9, speed, 36);
NCCL_AT(nccl_props_v9, latency, 44);
NCCL_AT(nccl_props_v9, vdevice, 64);
NCCL_AT(nccl_props_v9, max_p2p_bytes, 88);
_Static_assert(sizeof(struct nccl_props_v9) == 104, "size of NCCL's properties v9");
NCCL_AT(nccl_props_v11, max_multi_request_size, 104);
_Static_assert(sizeof(struct nccl_props_v11) == 112, "size of NCCL's properties v11");
NCCL_AT(nccl_props_v12, vdevice, 64);
NCCL_AT(nccl_props_v12, max_p2p_bytes, 104);
NCCL_AT(nccl_props_v12, rail_id, 124);
_Static_assert(sizeof(struct nccl_props_v12) == 128, "size of NCCL's properties v12");
NCCL_AT(nccl_net_v8, isend, 10 * 8);
NCCL_AT(nccl_net_v8, irecv_consumed, 18 * 8);
_Static_assert(sizeof(struct nccl_net_v8) == 19 * 8, "size of NCCL's table v8");
NCCL_AT(nccl_net_v9, make_vdevice, 19 * 8);
_Static_assert(sizeof(struct nccl_net_v9) == 20 * 8, "size of NCCL's table v9");
_Static_assert(sizeof(struct nccl_net_v10) == 20 * 8, "size of NCCL's table v10");
NCCL_AT(nccl_net_v11, set_net_attr, 21 * 8);
_Static_assert(sizeof(struct nccl_net_v11) == 22 * 8, "size of NCCL's table v11");
_Static_assert(sizeof(struct nccl_net_v12) == 22 * 8, "size of NCCL's table v12");
#endif

#endif
