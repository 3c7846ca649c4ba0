/* SPDX-License-Identifier: MIT */
#include "dev/soft/udp/device.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "dev/gid.h"
#include "dev/soft/alloc.h"
#include "dev/soft/core.h"
#include "dev/soft/qp.h"
#include "util/err.h"

/* A user-space peer may have lost its processor for a while: a timeout shorter than a
 * time slice would only send everything again. */
#define ACK_TIMEOUT_MIN UINT64_C(10000000)
/* On a path that is long enough for most of it to be on its way. */
#define FAR_WINDOW_MAX (2 * WINDOW_MAX)
/* Several for each of some thousand connections. */
#define QP_MAX 16384

/* More than this in flight is not faster. */
#define WINDOW_MAX (512u << 10)

enum snt_path snt__udp_device_path(struct snt__udp_device *device, struct ibv_qp *qp)
{
	enum snt_path path = SNT_PATH_UNKNOWN;
	const struct snt__soft_qp *soft;

	if (!qp)
		return device->shm.links ? SNT_PATH_SHM : SNT_PATH_UDP;
	if (device->foreign)
		return path;
	soft = snt__soft_qp(qp);
	snt__udp_lock(device);
	if (soft->mtu) /* it has a peer */
		path = snt__shm_find(&device->shm, soft->path.target,
				     snt__seat_of_qpn(soft->peer_qpn))
			       ? SNT_PATH_SHM
			       : SNT_PATH_UDP;
	snt__udp_unlock(device);
	return path;
}

/*
 * Creating and destroying
 */

/*
 * How many bytes of full packets fit into half of a receive buffer; the other half is
 * for the packets of other peers. In the worst case the kernel charges twice the
 * packet, and its own structures. The size of our buffer is the best estimate of a
 * peer's.
 */
static uint32_t request_window(const struct snt__udp_socket *socket, uint32_t mtu,
			       uint32_t max)
{
	uint64_t bytes = (uint64_t)socket->receive_bytes / 2 * mtu / (2 * mtu + 768);

	if (bytes > max)
		return max;
	return bytes > mtu ? bytes : mtu;
}

static int make_core(struct snt__udp_device *device, const struct snt__udp_opts *opts)
{
	struct snt__soft_config config = opts->config;
	uint32_t bytes, mtu;

	if (!config.mtu)
		config.mtu = snt__udp_mtu(device->address.ip_mtu);
	if (!config.mtu)
		return snt__fail(EMSGSIZE,
				 "%s: an interface with an MTU of %u has no room for "
				 "RDMA packets",
				 opts->name, device->address.ip_mtu);
	if (!config.qp_max)
		config.qp_max = QP_MAX;
	config.name = opts->name;
	config.seat = device->share.seat;
	config.driver = &snt__udp_driver;
	config.driver_arg = device;
	config.gids = (const uint8_t(*)[16])device->address.gid;
	config.gid_count = 1;
	config.netdev = device->address.netdev;
	mtu = snt__mtu_bytes(config.mtu);
	bytes = request_window(&device->socket, mtu, WINDOW_MAX);
	if (!config.request_window) {
		config.request_window = bytes;
		config.far_window =
			request_window(&device->socket, mtu, FAR_WINDOW_MAX);
	}
	if (!config.response_window)
		config.response_window = bytes;
	if (device->socket.gso)
		config.run_bytes = SNT__UDP_MESSAGE_MAX;
	if (!config.ack_timeout_min)
		config.ack_timeout_min = ACK_TIMEOUT_MIN;
	return snt__soft_device_create(&config, &device->core);
}

static void serve_share(void *arg)
{
	snt__udp_share_serve(arg);
}

/* Where peers and sharers find the device. */
static int open_meeting_places(struct snt__udp_device *device,
			       const struct snt__udp_opts *opts)
{
	int ret;

	device->shm.pull = opts->shm_pull;
	device->shm.serve_other = serve_share;
	device->shm.other_arg = device;
	ret = snt__shm_open(&device->shm, device->address.gid,
			    device->share.seat.number, opts->shm, device->core);
	return ret ? ret : snt__shm_watch_other(&device->shm, device->share.fd);
}

static int start_device(struct snt__udp_device *device,
			const struct snt__udp_opts *opts)
{
	int ret;

	ret = make_core(device, opts);
	if (ret)
		return ret;
	snt__udp_fork_add(device);
	ret = open_meeting_places(device, opts);
	if (!ret)
		ret = snt__udp_thread_start(device, opts->name);
	if (ret) {
		snt__udp_fork_remove(device);
		snt__shm_close(&device->shm, true);
		snt__soft_device_destroy(device->core);
	}
	return ret;
}

static void free_udp_device(struct snt__udp_device *device)
{
	snt__udp_receiver_finish(&device->receiver);
	snt__udp_sender_finish(&device->sender);
	snt__udp_gate_finish(&device->gate);
	snt__soft_free(device);
}

static int make_udp_device(const struct snt__udp_opts *opts,
			   struct snt__udp_device **device_out)
{
	struct snt__udp_device *device = snt__soft_alloc(1, sizeof(*device));
	int ret;

	if (!device)
		return -ENOMEM;
	device->address = *opts->address;
	device->users = 1;
	device->shm_wanted = opts->shm;
	device->send_long = SNT__PROGRESS_SEND_LONG;
	snt__shm_init(&device->shm);
	snt__udp_share_init(&device->share, &device->address);
	device->sender.shm = &device->shm;
	ret = snt__udp_gate_init(&device->gate);
	if (ret) {
		snt__soft_free(device);
		return ret;
	}
	ret = snt__udp_sender_init(&device->sender, &device->socket, &device->address);
	if (!ret)
		ret = snt__udp_receiver_init(&device->receiver, &device->socket,
					     &device->address);
	if (ret) {
		free_udp_device(device);
		return ret;
	}
	device->sender.gate = device->receiver.gate = &device->gate;
	*device_out = device;
	return 0;
}

/* Errors about the address are explained by the caller; -EAGAIN is that of
 * snt__thread_start(), and others are those of sharing, which have been explained. */
static int explain_open_error(const struct snt__udp_opts *opts, int ret)
{
	char text[SNT__GID_TEXT];

	if (ret == -EADDRINUSE || ret == -EADDRNOTAVAIL || ret == -EMSGSIZE ||
	    ret == -EAGAIN || ret == -ETIMEDOUT || ret == -EUSERS ||
	    ret == -ETOOMANYREFS || ret == -EPROTONOSUPPORT)
		return ret;
	return snt__fail(-ret, "%s on %s: cannot be made: %s", opts->name,
			 snt__gid_text(opts->address->gid, text), strerror(-ret));
}

/* Opens what a child must not have: the socket, and everything that lets peers find the
 * device. */
static int open_udp_device(struct snt__udp_device *device,
			   const struct snt__udp_opts *opts)
{
	uint32_t bytes = opts->buffer_bytes ? opts->buffer_bytes : SNT__UDP_BUFFER;
	int ret =
		snt__udp_share_open(&device->share, bytes, opts->join, &device->socket);

	if (ret)
		return ret;
	device->socket.gso &= !opts->no_gso;
	snt__udp_rx_hold_init(&device->receiver.rx_hold, &device->socket);
	ret = start_device(device, opts);
	if (ret) {
		snt__udp_rx_hold_finish(&device->receiver.rx_hold);
		close(device->socket.fd);
		snt__udp_share_close(&device->share);
	}
	return ret;
}

static void close_udp_device(struct snt__udp_device *device)
{
	snt__udp_thread_stop(device);
	snt__udp_fork_remove(device);
	snt__shm_close(&device->shm, true);
	snt__udp_rx_hold_finish(&device->receiver.rx_hold);
	close(device->socket.fd);
	snt__udp_share_close(&device->share);
}

/* With forks held off. */
static int make_and_open(const struct snt__udp_opts *opts,
			 struct snt__udp_device **device_out)
{
	struct snt__udp_device *device;
	int ret = make_udp_device(opts, &device);

	if (ret)
		return ret;
	ret = open_udp_device(device, opts);
	if (ret)
		free_udp_device(device);
	else
		*device_out = device;
	return ret;
}

static int check_random(const struct snt__udp_opts *opts)
{
	unsigned char random;
	int ret = snt__udp_random(&random, sizeof(random));

	return ret ? snt__fail(-ret, "%s: the system gives no random numbers: %s",
			       opts->name, strerror(-ret))
		   : 0;
}

int snt__udp_device_create(const struct snt__udp_opts *opts,
			   struct snt__udp_device **device_out)
{
	int ret = check_random(opts);

	if (ret)
		return ret;
	snt__udp_fork_hold();
	ret = make_and_open(opts, device_out);
	snt__udp_fork_release();
	return ret ? explain_open_error(opts, ret) : 0;
}

static bool has_options(const struct snt__udp_device *device,
			const struct snt__udp_opts *opts)
{
	return device->shm_wanted == opts->shm && device->shm.pull == opts->shm_pull;
}

int snt__udp_device_take(const struct snt__udp_opts *opts,
			 struct snt__udp_device **device_out)
{
	int ret = check_random(opts);

	if (ret)
		return ret;
	snt__udp_fork_hold();
	*device_out = snt__udp_fork_find(opts->address);
	if (!*device_out)
		ret = make_and_open(opts, device_out);
	else if (has_options(*device_out, opts))
		(*device_out)->users++;
	else
		ret = -EADDRINUSE;
	snt__udp_fork_release();
	return ret ? explain_open_error(opts, ret) : 0;
}

void snt__udp_device_use(struct snt__udp_device *device)
{
	snt__udp_fork_hold();
	device->users++;
	snt__udp_fork_release();
}

/* The device moves no packet after this. */
static void end_device(struct snt__udp_device *device)
{
	if (!device->foreign)
		close_udp_device(device);
	device->foreign = true;
}

static int free_ended(struct snt__udp_device *device)
{
	int ret = snt__soft_device_destroy(device->core);

	if (!ret)
		free_udp_device(device);
	return ret;
}

void snt__udp_device_put(struct snt__udp_device *device)
{
	bool last;

	snt__udp_fork_hold();
	last = !--device->users;
	if (last)
		end_device(device);
	snt__udp_fork_release();
	if (last)
		free_ended(device);
}

int snt__udp_device_destroy(struct snt__udp_device *device)
{
	if (!device)
		return 0;
	snt__udp_fork_hold();
	end_device(device);
	snt__udp_fork_release();
	return free_ended(device);
}

struct snt__udp_device *snt__udp_device_of(struct ibv_context *context)
{
	return snt__soft_device_of(context)->driver_arg;
}
