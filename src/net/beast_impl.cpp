// Boost.Beast's own code, compiled once (BOOST_BEAST_SEPARATE_COMPILATION). Only the network room parses HTTP.
#include <boost/beast/src.hpp>
