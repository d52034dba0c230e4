// SPDX-License-Identifier: BSD-3-Clause
// rsocket/socket: the descriptors that a thread waits for, and the end of the object.
#include "rsocket/socket.hpp"
#include "stream/leaving.hpp"

namespace rsockets {

Socket::~Socket() {
    if (carrier_.stream() != nullptr) {
        stream::Leaving::instance().add(carrier_.release(), take_fd());
    }
}

std::shared_ptr<stream::Shard> Socket::advance() {
    const base::Lock lock{carrier_.mutex()};
    carrier_.go_on();
    return carrier_.stream() != nullptr ? carrier_.stream()->shard() : nullptr;
}

Result<void> Socket::begin_wait(Sleep &sleep, short /*events*/) {
    const base::Lock lock{carrier_.mutex()};
    carrier_.go_on();
    return carrier_.begin_wait(sleep);
}

Result<std::vector<pollfd>> Socket::watch(short /*events*/) {
    const base::Lock lock{carrier_.mutex()};
    return carrier_.watched();
}

std::shared_ptr<AnySocket> Socket::in_child() const {
    return std::make_shared<Socket>(base::Fd{fd()}, *this);
}

}  // namespace rsockets
