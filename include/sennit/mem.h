/* SPDX-License-Identifier: MIT */
#ifndef SENNIT_MEM_H
#define SENNIT_MEM_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <sennit/api.h>
#include <sennit/ctx.h>

/*
 * Memory is registered once, on all devices of a context or on none. A token is what a
 * peer needs to reach the memory: address, length, access rights, and a key per device
 * of the owner. Programs send tokens in packed form by any means.
 *
 * Thread: any, for every call here. A slow registration delays no other thread.
 */

#ifdef __cplusplus
extern "C" {
#endif

struct ibv_mr;
struct ibv_sge;
struct snt_mem;

/* Numbered as verbs number them. Local read is always allowed. */
enum snt_access {
	SNT_ACCESS_LOCAL_WRITE = 1 << 0,
	SNT_ACCESS_REMOTE_WRITE = 1 << 1, /* needs LOCAL_WRITE */
	SNT_ACCESS_REMOTE_READ = 1 << 2,
	SNT_ACCESS_REMOTE_ATOMIC = 1 << 3, /* needs LOCAL_WRITE */
	SNT_ACCESS_WINDOW = 1 << 4, /* memory windows can be bound to it (mw.h) */
	/* A hint: devices that do not support it ignore it. */
	SNT_ACCESS_RELAXED_ORDERING = 1 << 20,
};

struct snt_token {
	uint64_t addr;
	uint64_t length;
	uint32_t access; /* the SNT_ACCESS_REMOTE_* bits it was made with */
	uint32_t key_count;
	uint32_t key[SNT_DEVICES_MAX]; /* by the owner's device index */
};

/* Maximum size of a packed token. */
#define SNT_TOKEN_PACKED_MAX (24 + 4 * SNT_DEVICES_MAX)

/**
 * snt_mem_register - register memory on all devices of a context
 * @access: SNT_ACCESS_* bits
 *
 * Ownership: the buffer stays the program's; it must not be unmapped before
 * snt_mem_release().
 * Returns: 0, or, with nothing registered anywhere,
 *   -EINVAL      no bytes, an address range that wraps, unknown access bits, or
 *                remote write or atomic without local write
 *   -EOPNOTSUPP  an adopted device without a control table: snt_mem_adopt(); or
 *                SNT_ACCESS_WINDOW, and a device has no memory windows
 *   -ENOMEM      also for a locked-memory limit, which the text then states
 *   -ECHILD      after a fork
 *   or the errno of the device that refused, which the text names.
 */
SNT_API int snt_mem_register(struct snt_ctx *ctx, void *addr, size_t length,
			     unsigned access, struct snt_mem **mem_out);

/**
 * snt_mem_alloc - allocate memory suited to the devices, and register it
 *
 * Whole pages, all bytes 0, at snt_mem_addr(); snt_mem_release() frees it. Between soft
 * devices on one host, data sent from such memory is copied once, directly to its
 * destination, and data from other memory twice; for all other devices there is no
 * difference. It takes an fd and counts as a file; where RLIMIT_NOFILE or RLIMIT_FSIZE
 * (ulimit -f) does not allow that, its data is copied twice as well. Child processes do
 * not inherit it.
 *
 * Returns: as snt_mem_register().
 */
SNT_API int snt_mem_alloc(struct snt_ctx *ctx, size_t length, unsigned access,
			  struct snt_mem **mem_out);

/**
 * snt_mem_register_dmabuf - register part of a dma-buf, say GPU memory
 * @fd: the dma-buf; may be closed after this call
 * @offset: where in the dma-buf the memory begins
 * @iova: the address by which this memory is named in requests and tokens
 *
 * Returns: as snt_mem_register(); -EOPNOTSUPP also where a device, which the
 * text names, has no support for it.
 */
SNT_API int snt_mem_register_dmabuf(struct snt_ctx *ctx, int fd, uint64_t offset,
				    size_t length, uint64_t iova, unsigned access,
				    struct snt_mem **mem_out);

/**
 * snt_mem_adopt - use memory regions that the program registered itself
 * @mr: one for each device of the context, in index order, each on that device's
 *      PD and all for the same memory
 * @addr: address of the memory in requests: the iova where it was registered with one,
 *      else its address; ibv_mr::addr is not always right
 * @access: the rights they were registered with; verbs cannot query them
 *
 * Ownership: the regions stay the program's and must outlive the snt_mem.
 * Returns: 0; -EINVAL if the count, a length or a PD does not fit; -ENOMEM.
 */
SNT_API int snt_mem_adopt(struct snt_ctx *ctx, struct ibv_mr *const *mr,
			  size_t mr_count, uint64_t addr, unsigned access,
			  struct snt_mem **mem_out);

/**
 * snt_mem_release - deregister on all devices and free
 *
 * NULL is legal and does nothing. All devices are tried even if one fails. After a
 * failure the snt_mem can only be released again.
 *
 * Other threads may post and poll during this call, but no concurrent call may name
 * this memory, and no WR in flight should: such a WR fails with SNT_WC_LOC_PROT_ERR when
 * the device checks the key, and may have been carried out in part. Later calls that
 * name the memory fail with -EINVAL as long as the library keeps the structure: it
 * keeps those of the last 64 memories released in a context, including the memory of
 * its own connections and streams. After that the snt_mem is freed, and using it is
 * undefined behaviour.
 *
 * Returns: 0; -EINVAL if it has been released before; else the errno of the first
 * device that refused, for instance -EBUSY while a memory window is bound to the
 * memory.
 */
SNT_API int snt_mem_release(struct snt_mem *mem);

/**
 * snt_mem_addr, snt_mem_length - get the range as used in requests
 */
SNT_API uint64_t snt_mem_addr(const struct snt_mem *mem);
SNT_API size_t snt_mem_length(const struct snt_mem *mem);

/**
 * snt_mem_sge - a verbs scatter/gather entry for part of a memory
 * @device: index of the device whose key is wanted
 * @offset: from the memory's beginning
 *
 * Returns: 0; -ERANGE if any byte lies outside; -EINVAL for an unknown device, a length
 * that does not fit an SGE (4 GiB - 1), or a memory whose release failed.
 */
SNT_API int snt_mem_sge(const struct snt_mem *mem, unsigned device, size_t offset,
			size_t length, struct ibv_sge *sge_out);

/**
 * snt_mem_token - get the token that a peer needs to reach this memory
 *
 * Returns: 0; -EACCES if the memory was registered without remote access; -EINVAL for a
 * memory whose release failed.
 */
SNT_API int snt_mem_token(const struct snt_mem *mem, struct snt_token *token_out);

/**
 * snt_token_target - get the remote address and key for part of a token
 * @device: the owner's device index
 * @access: the one SNT_ACCESS_REMOTE_* right that is needed
 *
 * Returns: 0; -ERANGE if any byte lies outside; -EACCES if the token does not
 * grant the access; -EINVAL if it has no key for the device, or if @access is not
 * exactly one right.
 */
SNT_API int snt_token_target(const struct snt_token *token, unsigned device,
			     uint64_t offset, uint64_t length, unsigned access,
			     uint64_t *addr_out, uint32_t *key_out);

/**
 * snt_token_pack - write a token as bytes that any peer can read
 *
 * Returns: the number of bytes; -ENOSPC if size is too small
 * (SNT_TOKEN_PACKED_MAX always suffices); -EINVAL for a token that
 * snt_token_unpack() would refuse.
 */
SNT_API ssize_t snt_token_pack(const struct snt_token *token, void *buffer,
			       size_t size);

/**
 * snt_token_unpack - read and validate a token from bytes
 * @size: exactly the packed size
 *
 * Returns: 0; -EPROTONOSUPPORT for another version; -EBADMSG for any input that
 * snt_token_pack() cannot produce: truncated or oversized input, a key count of 0 or
 * above SNT_DEVICES_MAX, an empty or wrapping range, unknown access bits.
 */
SNT_API int snt_token_unpack(const void *buffer, size_t size,
			     struct snt_token *token_out);

#ifdef __cplusplus
}
#endif

#endif
