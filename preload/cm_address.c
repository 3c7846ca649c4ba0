/* SPDX-License-Identifier: MIT */
/* Ids get addresses. The address decides which kind an id is. */
#include <errno.h>
#include <netinet/in.h>
#include <string.h>
#include <unistd.h>

#include "dev/soft/cm_address.h"
#include "dev/soft/cm_manager.h"
#include "cm.h"

#define BACKLOG_DEFAULT 128

/*
 * The owners of addresses
 */

enum whose {
	NOBODY, /* the unspecified address, or none */
	SOFT,
	OTHER,
};

static size_t length_of(const struct sockaddr *address)
{
	return address->sa_family == AF_INET6 ? sizeof(struct sockaddr_in6)
					      : sizeof(struct sockaddr_in);
}

static enum whose find_address_owner(const struct sockaddr *address,
				     unsigned *device_out)
{
	struct snt__preload_devices devices = snt__preload_devices();
	uint8_t gid[16];
	uint16_t port;

	if (!address || address->sa_family == AF_UNSPEC)
		return NOBODY;
	if (snt__soft_cm_read_address(address, gid, &port))
		return OTHER;
	if (snt__soft_cm_is_unspecified(gid))
		return NOBODY;
	for (*device_out = 0; *device_out < devices.count; ++*device_out)
		if (snt__soft_cm_gid_index(snt__soft_device_of(
						   devices.context[*device_out]),
					   gid) >= 0)
			return SOFT;
	return OTHER;
}

/* Soft devices support the port spaces of RC connections. */
static bool can_be_soft(const struct snt__preload_id *id)
{
	return (id->rdma.ps == RDMA_PS_TCP || id->rdma.ps == RDMA_PS_IB) &&
	       snt__preload_devices().count;
}

static void keep_source(struct snt__preload_id *id, const struct sockaddr *address)
{
	memset(&id->rdma.route.addr.src_storage, 0, sizeof(struct sockaddr_storage));
	memcpy(&id->rdma.route.addr.src_storage, address, length_of(address));
}

static bool is_loopback(const struct sockaddr_storage *address)
{
	const struct sockaddr_in *four = (const struct sockaddr_in *)address;
	const struct sockaddr_in6 *six = (const struct sockaddr_in6 *)address;

	if (address->ss_family == AF_INET)
		return ntohl(four->sin_addr.s_addr) >> 24 == 127;
	return address->ss_family == AF_INET6 && IN6_IS_ADDR_LOOPBACK(&six->sin6_addr);
}

/* The source address that the kernel would use for a target. */
static bool find_source(const struct sockaddr *target, struct sockaddr_storage *source)
{
	socklen_t length = sizeof(*source);
	int fd = socket(target->sa_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	bool found = fd >= 0 && connect(fd, target, length_of(target)) == 0 &&
		     getsockname(fd, (struct sockaddr *)source, &length) == 0;

	if (fd >= 0)
		close(fd);
	return found;
}

/*
 * Does a soft device lead there? It does if the route's source is its address. On
 * loopback every route has the source 127.0.0.1, so that any address there will do.
 */
static bool leads_soft(const struct snt__preload_id *id, const struct sockaddr *target)
{
	struct snt__preload_devices devices = snt__preload_devices();
	struct sockaddr_storage source;
	unsigned device;

	if (!can_be_soft(id))
		return false;
	if (!id->real)
		return true;
	if (!find_source(target, &source))
		return false;
	if (find_address_owner((const struct sockaddr *)&source, &device) == SOFT)
		return true;
	if (!is_loopback(&source))
		return false;
	for (device = 0; device < devices.count; device++) {
		struct ibv_gid_entry entry;
		struct sockaddr_storage ours;

		if (snt__preload_control()->query_gid(devices.context[device], 1, 0,
						      &entry))
			continue;
		snt__soft_cm_write_address(entry.gid.raw, 0, &ours);
		if (is_loopback(&ours) && ours.ss_family == source.ss_family)
			return true;
	}
	return false;
}

/*
 * Binding
 */

/* Chooses a port on which no listener is, by listening for a moment. (It is not
 * reserved for the id; another id that gets it may listen first.) With the lock. */
static int bind_soft(struct snt__preload_id *id, const struct sockaddr *address)
{
	struct snt__cm *cm = snt__preload_cm();
	struct sockaddr_storage source, none;
	struct snt__cm_id *listener;
	int ret = cm ? cm->table->listen(cm, address, 1, &listener) : -errno;

	if (ret)
		return ret;
	cm->table->addresses(listener, &source, &none);
	cm->table->destroy(listener);
	keep_source(id, (const struct sockaddr *)&source);
	return 0;
}

int rdma_bind_addr(struct rdma_cm_id *rdma, struct sockaddr *address)
{
	struct snt__preload_id *id = snt__preload_id(rdma);
	unsigned device;
	enum whose owner;
	int ret;

	if (BYPASSED())
		return snt__real()->rdma_bind_addr(rdma, address);
	owner = find_address_owner(address, &device);
	if (can_be_soft(id) && (owner == SOFT || (owner == NOBODY && !id->real))) {
		pthread_mutex_lock(&snt__preload_cm_lock);
		ret = bind_soft(id, address);
		if (!ret && owner == SOFT)
			snt__preload_id_bind(id, device);
		pthread_mutex_unlock(&snt__preload_cm_lock);
		if (!ret && owner == SOFT) {
			id->is_soft = true;
			snt__preload_drop_real(id);
		}
		ret = AS_MINUS_ONE(ret);
	} else if (id->real) {
		ret = snt__real()->rdma_bind_addr(id->real, address);
		snt__preload_mirror(id);
	} else {
		ret = AS_MINUS_ONE(-ENODEV);
	}
	id->bound = !ret;
	return ret;
}

/*
 * Listening
 */

/* On the id's address and port, or on all addresses and a port that is chosen. */
static int listen_soft(struct snt__preload_id *id, int backlog)
{
	struct sockaddr_in any = { .sin_family = AF_INET };
	const struct sockaddr *address = &id->rdma.route.addr.src_addr;
	struct snt__cm *cm;
	int ret;

	if (address->sa_family != AF_INET && address->sa_family != AF_INET6)
		address = (const struct sockaddr *)&any;
	id->backlog = backlog > 0 ? (unsigned)backlog : BACKLOG_DEFAULT;
	pthread_mutex_lock(&snt__preload_cm_lock);
	cm = snt__preload_cm();
	ret = cm ? cm->table->listen(cm, address, id->backlog, &id->soft) : -errno;
	if (!ret) {
		id->soft->user = id;
		snt__preload_id_update(id);
	}
	pthread_mutex_unlock(&snt__preload_cm_lock);
	return AS_MINUS_ONE(ret);
}

int rdma_listen(struct rdma_cm_id *rdma, int backlog)
{
	struct snt__preload_id *id = snt__preload_id(rdma);
	unsigned device;
	int ret = 0;

	if (BYPASSED())
		return snt__real()->rdma_listen(rdma, backlog);
	if (id->soft)
		return AS_MINUS_ONE(-EINVAL);
	if (id->real) {
		ret = snt__real()->rdma_listen(id->real, backlog);
		snt__preload_mirror(id);
	}
	if (ret || !can_be_soft(id) ||
	    (!id->is_soft &&
	     find_address_owner(&rdma->route.addr.src_addr, &device) == OTHER))
		return ret;
	return listen_soft(id, backlog);
}

/*
 * Resolving
 */

static int resolve_soft(struct snt__preload_id *id, const struct sockaddr *source,
			const struct sockaddr *target, int timeout_ms)
{
	struct snt__cm *cm;
	int ret;

	if (id->soft)
		return AS_MINUS_ONE(-EINVAL);
	snt__preload_drop_real(id);
	id->is_soft = true;
	pthread_mutex_lock(&snt__preload_cm_lock);
	cm = snt__preload_cm();
	ret = cm ? cm->table->resolve(cm, source, target, (unsigned)timeout_ms,
				      &id->soft)
		 : -errno;
	if (!ret)
		id->soft->user = id;
	pthread_mutex_unlock(&snt__preload_cm_lock);
	return AS_MINUS_ONE(ret);
}

int rdma_resolve_addr(struct rdma_cm_id *rdma, struct sockaddr *source,
		      struct sockaddr *target, int timeout_ms)
{
	struct snt__preload_id *id = snt__preload_id(rdma);
	struct sockaddr *from = source;
	unsigned device;
	enum whose owner;
	int ret;

	if (BYPASSED())
		return snt__real()->rdma_resolve_addr(rdma, source, target, timeout_ms);
	if (!from && id->bound)
		from = &rdma->route.addr.src_addr;
	owner = find_address_owner(from, &device);
	if (can_be_soft(id) &&
	    (owner == SOFT || (owner == NOBODY && leads_soft(id, target)))) {
		ret = resolve_soft(id, owner == SOFT ? from : NULL, target, timeout_ms);
	} else if (id->real) {
		ret = snt__real()->rdma_resolve_addr(id->real, source, target,
						     timeout_ms);
		snt__preload_mirror(id);
	} else {
		ret = AS_MINUS_ONE(-ENODEV);
	}
	return ret ? ret : snt__preload_complete(id);
}

/* Routes of soft devices' packets are the kernel's business. */
int rdma_resolve_route(struct rdma_cm_id *rdma, int timeout_ms)
{
	struct snt__preload_id *id = snt__preload_id(rdma);
	int ret;

	if (BYPASSED())
		return snt__real()->rdma_resolve_route(rdma, timeout_ms);
	if (id->real) {
		ret = snt__real()->rdma_resolve_route(id->real, timeout_ms);
		snt__preload_mirror(id);
	} else if (!rdma->verbs) {
		ret = AS_MINUS_ONE(-EINVAL);
	} else {
		pthread_mutex_lock(&snt__preload_cm_lock);
		ret = AS_MINUS_ONE(
			snt__preload_raise(id, RDMA_CM_EVENT_ROUTE_RESOLVED));
		pthread_mutex_unlock(&snt__preload_cm_lock);
	}
	return ret ? ret : snt__preload_complete(id);
}
