// Boost.Asio's own code, compiled once: BOOST_ASIO_SEPARATE_COMPILATION keeps it out of every other file. It sits in
// the room that all others link, since both the network and the engine use the loop; a program that uses neither links
// nothing.
#include <boost/asio/impl/src.hpp>
